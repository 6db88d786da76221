package protocol

import "time"

// LoadRequest asks a frontend for the load that it remembers. It answers with cluster.RecordedLoad, one or several,
// in no order of time.
type LoadRequest struct {
	// Since leaves out requests that arrived longer ago; 0 leaves out none.
	Since time.Duration `json:"since_ns"`
}
