package cluster

import "time"

// Desire is the operator's order to one worker, as its assignment stores it.
type Desire string

const (
	// DesireRun asks for a serving worker.
	DesireRun Desire = "run"
	// DesireDrain asks the worker to finish and stay drained until resumed.
	DesireDrain Desire = "drain"
	// DesireRemove asks the worker to drain and go; the controller then deletes
	// the assignment.
	DesireRemove Desire = "remove"
)

// Assignment says which node runs which worker, and how. The controller writes
// it; drain and resume change Desire; the node's agent converges on it.
type Assignment struct {
	Name string `json:"name"` // worker-7
	// Pool is the pool of the topology that the worker belongs to: empty for the main one,
	// the URL of an attached server.
	Pool   string     `json:"pool,omitempty"`
	Role   Role       `json:"role"`
	Model  ModelSpec  `json:"model"`
	Engine EngineSpec `json:"engine"`
	Node   string     `json:"node"`   // node id; empty while unplaced
	Device string     `json:"device"` // cpu:0, gpu:1; empty while unplaced, and for an attached server
	Desire Desire     `json:"desire"`
	// DrainDeadline limits a drain; zero means no limit. A worker that passes it keeps
	// draining and reports that it is overdue.
	DrainDeadline time.Time `json:"drain_deadline,omitzero"`
	// Sleep asks, with DesireDrain, that the worker keeps its server once it is drained and puts
	// it to sleep at this level, [SleepLight] or [SleepDeep]; 0 means that the worker ends.
	Sleep int `json:"sleep,omitempty"`
	// Asleep is the level at which the worker's server sleeps by the cluster's order, 0 if it
	// does not. The controller keeps it, since not every server tells that it sleeps. A worker
	// that is to run wakes such a server.
	Asleep int `json:"asleep,omitempty"`
	// DrainForce cuts off the requests that still run at DrainDeadline, or at once if
	// there is none. Other workers continue them.
	DrainForce bool `json:"drain_force,omitempty"`
	// RoleOrdered is set when an operator chose this worker for its role. The controller
	// then leaves it on its node even if that node prefers other roles.
	RoleOrdered bool `json:"role_ordered,omitempty"`
	// Replace asks for a successor: the controller starts another worker first, then this
	// one drains and its assignment is deleted.
	Replace bool `json:"replace,omitempty"`
	// Replaces names the worker that drains once this one serves. It is empty when there
	// is none or that worker is gone.
	Replaces string `json:"replaces,omitempty"`
	// Unplaced says why the controller found no node; empty when it found one.
	Unplaced string `json:"unplaced,omitempty"`
	// Restarts is the value of Topology.Restarts that this worker has followed.
	Restarts int64 `json:"restarts,omitempty"`
	// Starts counts the restarts ordered for this worker alone.
	Starts int64 `json:"starts,omitempty"`
	// Last is the worker's form before its latest change in place. It stays set until the
	// worker serves in its new form. If the worker cannot, the controller restores Last.
	// Zero means that there is no form to go back to.
	Last Form `json:"last,omitzero"`
	// Refused is the latest change in place that the worker could not make. The
	// controller does not try the same change in place again.
	Refused Refusal `json:"refused,omitzero"`
	// Generation increases with every change that restarts the worker or changes its
	// role.
	Generation int64 `json:"generation"`
}

// The levels at which a server sleeps. Its KV cache is lost at either.
const (
	// SleepLight keeps the weights in the host's memory.
	SleepLight = 1
	// SleepDeep drops the weights too: the server loads them again when it wakes.
	SleepDeep = 2
)

// SleepLevel returns the level at which the worker's server is to sleep; 0 if it is not to.
func (a Assignment) SleepLevel() int {
	if a.Desire != DesireDrain {
		return 0
	}
	return a.Sleep
}

// Form describes a worker apart from its node and device. A change of any field but Role
// needs a restart.
type Form struct {
	Role     Role       `json:"role"`
	Model    ModelSpec  `json:"model"`
	Engine   EngineSpec `json:"engine"`
	Restarts int64      `json:"restarts,omitempty"`
	Starts   int64      `json:"starts,omitempty"`
}

// Refusal is a form that a worker could not take, with the reason.
type Refusal struct {
	Form Form   `json:"form"`
	Why  string `json:"why"`
}

// Form returns the form that the assignment asks for.
func (a Assignment) Form() Form { return Form{a.Role, a.Model, a.Engine, a.Restarts, a.Starts} }

// Become makes the assignment ask for form f.
func (a *Assignment) Become(f Form) {
	a.Role, a.Model, a.Engine, a.Restarts, a.Starts = f.Role, f.Model, f.Engine, f.Restarts, f.Starts
}

// Like reports whether next asks for the same weights and engine on the same device. The
// role may differ.
func (a Assignment) Like(next Assignment) bool {
	return a.Name == next.Name && a.Model == next.Model && a.Engine == next.Engine &&
		a.Node == next.Node && a.Device == next.Device && a.Restarts == next.Restarts && a.Starts == next.Starts
}

// Flips reports whether next asks a running worker only for another role, and it can take
// that one. The worker then keeps its weights and its KV pool.
func (a Assignment) Flips(next Assignment) bool {
	return a.Like(next) && a.Role != next.Role && a.Role.HoldsKV() && next.Role.HoldsKV() && next.Desire == DesireRun
}
