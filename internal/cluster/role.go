package cluster

import "fmt"

// Role is the work that a worker does for requests.
type Role string

const (
	// RolePrefill computes the KV blocks of prompts and writes them to decode workers.
	RolePrefill Role = "prefill"
	// RoleDecode generates tokens; it also prefills short prompts itself.
	RoleDecode Role = "decode"
	// RoleEncode turns images into embeddings. Its workers have only the vision tower of a
	// vision-language model, or stand for a server that computes embeddings of media for others.
	RoleEncode Role = "encode"
)

// Roles lists every role in the order in which workers are named and shown.
var Roles = []Role{RolePrefill, RoleDecode, RoleEncode}

// ParseRole returns the role named s.
func ParseRole(s string) (Role, error) {
	for _, r := range Roles {
		if string(r) == s {
			return r, nil
		}
	}
	return "", fmt.Errorf("unknown role %q (known: prefill, decode, encode)", s)
}

// HoldsKV reports whether workers of the role have a KV pool, and the weights that compute
// keys and values. Only between such roles can a running worker change.
func (r Role) HoldsKV() bool { return r != RoleEncode }

// Unit names one piece of the work of the role, in the singular: a sequence, or an image.
func (r Role) Unit() string {
	if r == RoleEncode {
		return "image"
	}
	return "sequence"
}

// Component returns the runtime component under which workers of this role register.
func (r Role) Component() string { return string(r) }

// State is a stage in the life of a worker:
//
//	pending -> loading -> warming -> ready -> draining -> drained -> stopped
//
// plus degraded (serving, with a reason), sleeping (drained, and the server that it stands for has
// given its memory back) and failed (restarted after a back-off).
type State string

// The states of a worker, in the order of its life.
const (
	StatePending  State = "pending"
	StateLoading  State = "loading"
	StateWarming  State = "warming"
	StateReady    State = "ready"
	StateDegraded State = "degraded"
	StateDraining State = "draining"
	StateSleeping State = "sleeping"
	StateDrained  State = "drained"
	StateStopped  State = "stopped"
	StateFailed   State = "failed"
	// StateLost marks a worker whose lease expired without a drain. No worker publishes
	// it; observers conclude it.
	StateLost State = "lost"
)

// Serving reports whether a worker in this state accepts new requests.
func (s State) Serving() bool { return s == StateReady || s == StateDegraded }
