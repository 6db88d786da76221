package cluster

import "time"

// ProgramKind says how a program joined the cluster.
type ProgramKind string

// Kinds of programs.
const (
	ProgramService ProgramKind = "service" // attached: a node holds its lease
	ProgramOwn     ProgramKind = "program" // holds its lease itself, by package dynamo
)

// Program is a program beside the workers that serves something in the cluster, as it or its
// node publishes it under its lease.
type Program struct {
	Name       string      `json:"name"` // "attached-" and an id, or the program's own
	Kind       ProgramKind `json:"kind"`
	InstanceID InstanceID  `json:"instance_id"` // its lease
	Node       string      `json:"node,omitempty"`
	Host       string      `json:"host,omitempty"`
	PID        int         `json:"pid,omitempty"`
	URL        string      `json:"url,omitempty"`   // of a service
	Model      string      `json:"model,omitempty"` // whose engine it is
	// Reason says why it does not work; empty while it does. Since is when that changed.
	Reason    string    `json:"reason,omitempty"`
	Since     time.Time `json:"since"`
	StartedAt time.Time `json:"started_at"` // when it joined
}

// State is ready, or degraded with a reason.
func (p Program) State() State {
	if p.Reason != "" {
		return StateDegraded
	}
	return StateReady
}

// ProgramKey holds what a program publishes under its lease.
func ProgramKey(namespace string, id InstanceID) string {
	return ProgramPrefix(namespace) + id.String()
}

// ProgramPrefix covers the programs of a namespace.
func ProgramPrefix(namespace string) string { return "/dynctl/" + namespace + "/programs/" }
