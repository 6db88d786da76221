package cluster

import "time"

// Desire is what an assignment asks of its worker.
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
	Name   string     `json:"name"` // worker-7
	Role   Role       `json:"role"`
	Model  ModelSpec  `json:"model"`
	Engine EngineSpec `json:"engine"`
	Node   string     `json:"node"`   // node id; empty while unplaced
	Device string     `json:"device"` // cpu:0, gpu:1; empty while unplaced
	Desire Desire     `json:"desire"`
	// DrainDeadline limits a drain; zero means none. After it the worker stays
	// draining and says so.
	DrainDeadline time.Time `json:"drain_deadline,omitzero"`
	// DrainForce ends a drain at once: what still runs is cut off and continued by
	// other workers.
	DrainForce bool `json:"drain_force,omitempty"`
	// RoleOrdered says that somebody chose this worker for its role: it stays where it is,
	// though its node prefers other roles.
	RoleOrdered bool `json:"role_ordered,omitempty"`
	// Replace asks for a successor: another worker is started first, then this one
	// drains and goes.
	Replace bool `json:"replace,omitempty"`
	// Replaces names the worker that drains and goes once this one serves; empty when
	// there is none, or it has gone.
	Replaces string `json:"replaces,omitempty"`
	// Unplaced says why no node was found.
	Unplaced string `json:"unplaced,omitempty"`
	// Restarts is the Topology.Restarts that this worker has followed.
	Restarts int64 `json:"restarts,omitempty"`
	// Starts counts the orders to restart this worker alone.
	Starts int64 `json:"starts,omitempty"`
	// Last is what the worker was until it was changed in its place. While it is set,
	// nobody has seen the worker serve as what it is now; when it cannot, it becomes Last
	// again. Zero when there is nothing to go back to.
	Last Form `json:"last,omitzero"`
	// Refused is the last change in its place that the worker could not follow. The same
	// is not tried in its place again.
	Refused Refusal `json:"refused,omitzero"`
	// Generation increases with every change that needs a restart of the worker, or a
	// change of its role.
	Generation int64 `json:"generation"`
}

// Form is what a worker is, apart from where it runs.
type Form struct {
	Role     Role       `json:"role"`
	Model    ModelSpec  `json:"model"`
	Engine   EngineSpec `json:"engine"`
	Restarts int64      `json:"restarts,omitempty"`
	Starts   int64      `json:"starts,omitempty"`
}

// Refusal is a form that a worker could not take, and why.
type Refusal struct {
	Form Form   `json:"form"`
	Why  string `json:"why"`
}

// Form returns what the assignment makes of its worker.
func (a Assignment) Form() Form { return Form{a.Role, a.Model, a.Engine, a.Restarts, a.Starts} }

// Become makes the assignment one for a worker of another form.
func (a *Assignment) Become(f Form) {
	a.Role, a.Model, a.Engine, a.Restarts, a.Starts = f.Role, f.Model, f.Engine, f.Restarts, f.Starts
}

// Like reports whether next asks for a worker with the same weights and engine at the
// same place: what differs is its role at most.
func (a Assignment) Like(next Assignment) bool {
	return a.Name == next.Name && a.Model == next.Model && a.Engine == next.Engine &&
		a.Node == next.Node && a.Device == next.Device && a.Restarts == next.Restarts && a.Starts == next.Starts
}

// Flips reports whether next asks a running worker for another role and for nothing
// else: it keeps weights and KV pool.
func (a Assignment) Flips(next Assignment) bool {
	return a.Like(next) && a.Role != next.Role && next.Desire == DesireRun
}
