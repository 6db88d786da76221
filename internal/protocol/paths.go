package protocol

// PathsRequest asks a worker for its NIXL paths to other workers. The worker answers with
// one cluster.Path for each.
type PathsRequest struct {
	// Peer is the name of a worker; empty asks for all that this worker has met.
	Peer string `json:"peer"`
	// Test asks for a self-test of the path to Peer before the answer.
	Test bool `json:"test"`
}
