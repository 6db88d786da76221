package cluster

import "encoding/json"

// Revision is all that people declare of a cluster: the topology, and the settings that
// change at run time.
type Revision struct {
	Topology Topology `json:"topology"`
	// Settings holds those that are set, by name, as they are stored.
	Settings map[string]json.RawMessage `json:"settings,omitempty"`
}

// Take makes t declare what other declares. What says when and why t was changed, and
// orders that were given once, stay.
func (t *Topology) Take(other Topology) {
	t.Model, t.Engine, t.Placement = other.Model, other.Engine, other.Placement
	t.Prefill, t.PrefillSpec = other.Prefill, other.PrefillSpec
	t.Decode, t.DecodeSpec = other.Decode, other.DecodeSpec
}
