package cluster

import (
	"encoding/json"
	"maps"
	"slices"
)

// Revision holds everything that operators declare about a cluster: the topology and the
// settings that change at run time.
type Revision struct {
	Topology Topology `json:"topology"`
	// Settings holds the settings in force by name, in their stored JSON form. Settings
	// that are not set are absent.
	Settings map[string]json.RawMessage `json:"settings,omitempty"`
}

// Take makes t declare what other declares. The generation, the record of the last change
// and one-time orders (restarts, flips) stay those of t.
func (t *Topology) Take(other Topology) {
	t.Model, t.Engine, t.Placement = other.Model, other.Engine, other.Placement
	t.Prefill, t.PrefillSpec = other.Prefill, other.PrefillSpec
	t.Decode, t.DecodeSpec = other.Decode, other.DecodeSpec
	t.Encode, t.EncodeSpec = other.Encode, other.EncodeSpec
	t.Pools, t.Attached = maps.Clone(other.Pools), slices.Clone(other.Attached)
}
