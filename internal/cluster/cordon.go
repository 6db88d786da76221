package cluster

import "time"

// Cordon is the order that a node shall run no workers: those that it has are replaced
// elsewhere, drain and go. It stays until it is taken back, over restarts of the node.
type Cordon struct {
	Node string    `json:"node"` // node id
	At   time.Time `json:"at"`
	By   string    `json:"by,omitempty"` // "user@host"
	// Deadline limits the drains of the node's workers, Force cuts off what still runs
	// then; see [Assignment].
	Deadline time.Time `json:"deadline,omitzero"`
	Force    bool      `json:"force,omitempty"`
}
