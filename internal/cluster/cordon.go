package cluster

import "time"

// Cordon is the order that a node run no workers. The controller replaces the node's
// workers on other nodes, then they drain and leave. The order survives restarts of the
// node, until an operator takes it back.
type Cordon struct {
	Node string    `json:"node"` // node id
	At   time.Time `json:"at"`
	By   string    `json:"by,omitempty"` // "user@host"
	// Deadline and Force apply to the drains of the node's workers, as DrainDeadline and
	// DrainForce of [Assignment].
	Deadline time.Time `json:"deadline,omitzero"`
	Force    bool      `json:"force,omitempty"`
}
