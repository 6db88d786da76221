package protocol

// PathsRequest asks a worker how it reaches others over NIXL; it answers with one
// cluster.Path for each.
type PathsRequest struct {
	// Peer is a worker; empty stands for all that this one has met.
	Peer string `json:"peer"`
	// Test runs a self-test of the path to Peer now.
	Test bool `json:"test"`
}
