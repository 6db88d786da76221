package planner

import (
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Observation is what was seen in a window of time, and the cluster at its end.
type Observation struct {
	Start, End time.Time
	Arrived    int       // requests that arrived in the window
	Requests   []Request // a sample of those that finished in it
	// Prefill and Decode are the roles at the end of the window.
	Prefill, Decode RoleState
	// MaxLocalPrefill is disagg.max_local_prefill_tokens in effect.
	MaxLocalPrefill int
	Pending         []Pending  // actions that have not ended, whoever ordered them
	Finished        []Duration // actions that ended in the window
	// Waits says what pending actions wait for, without a full stop; empty if nobody knows.
	Waits     string
	NodesLost int // nodes whose lease ended in the window
	// Stale says why the observation says nothing of now; empty if it does.
	Stale string
	// Unknown says what is not known of the workers yet, so that nothing can be decided.
	Unknown string
	// NotLeader is set where another planner decides.
	NotLeader bool
	// Hold says why nothing may change now, although the observation is good; zero if it may.
	Hold Hold
}

// Hold is a reason to change nothing: one of the refusals, and a sentence without its full stop.
type Hold struct {
	Refusal Refusal
	Why     string
}

// Request is a finished request. TTFT and ITL are 0 where they are unknown.
type Request struct {
	Length
	TTFT time.Duration
	ITL  time.Duration // mean over the request
}

// RoleState is what is known of the workers of one role.
type RoleState struct {
	Queued       int           // requests that wait for a worker of the role
	QueuedTokens int           // uncached prompt tokens of these
	OldestAge    time.Duration // of the request that waits longest
	Workers      []Worker
}

// WorkerState is how far a worker is.
type WorkerState string

// States of workers.
const (
	WorkerReady    WorkerState = "ready"
	WorkerStarting WorkerState = "starting"
	WorkerDraining WorkerState = "draining"
	WorkerLost     WorkerState = "lost"
)

// Worker is one worker at the end of a window.
type Worker struct {
	Name  string      `json:"name"`
	State WorkerState `json:"state"`
	// Attached is set for a server that runs already: it takes no device, and nobody here starts or stops it.
	Attached     bool          `json:"attached,omitempty"`
	QueuedTokens int           `json:"queued_tokens"`  // uncached prompt tokens that wait at this worker
	KVTokens     int           `json:"kv_tokens"`      // tokens of KV that running sequences hold
	Step         time.Duration `json:"step_ns"`        // mean time of a decode step in the window; 0: none
	PromptTokens int           `json:"prompt_tokens"`  // prompt tokens computed in the window
	PromptBusy   time.Duration `json:"prompt_busy_ns"` // time spent computing them
}

// Pending is an action that has not ended.
type Pending struct {
	Kind  ActionKind
	Role  cluster.Role // of the worker afterwards; of a drained one, before
	Since time.Time
	// Worker is the name of the worker; empty where it has none yet.
	Worker string
}

// Duration is how long a finished action took.
type Duration struct {
	Kind ActionKind
	Took time.Duration
	Role cluster.Role // of the worker afterwards; of a drained one, before
}

// Role returns the state of one role.
func (o Observation) Role(role cluster.Role) RoleState {
	if role == cluster.RolePrefill {
		return o.Prefill
	}
	return o.Decode
}

// In returns how many workers of a role are in a state.
func (r RoleState) In(state WorkerState) int {
	n := 0
	for _, w := range r.Workers {
		if w.State == state {
			n++
		}
	}
	return n
}

// attached returns how many of the workers that serve or will are attached.
func (r RoleState) attached() int {
	n := 0
	for _, w := range r.Workers {
		if w.Attached && (w.State == WorkerReady || w.State == WorkerStarting) {
			n++
		}
	}
	return n
}

// draining returns how many workers about to stop hold devices.
func (r RoleState) draining() int {
	n := 0
	for _, w := range r.Workers {
		if w.State == WorkerDraining && !w.Attached {
			n++
		}
	}
	return n
}

// ready returns the plan of the workers that serve.
func (o Observation) ready() Plan {
	return Plan{Prefill: o.Prefill.In(WorkerReady), Decode: o.Decode.In(WorkerReady), MaxLocalPrefill: o.MaxLocalPrefill}
}

// current returns the plan of the workers that serve or will: what was proposed last, unless
// workers were lost or somebody else changed something.
func (o Observation) current() Plan {
	p := o.ready()
	p.Prefill += o.Prefill.In(WorkerStarting)
	p.Decode += o.Decode.In(WorkerStarting)
	return p
}
