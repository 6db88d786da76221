package protocol

// DecisionsRequest asks a frontend for the router decisions that it remembers. The
// frontend answers with one cluster.RouterDecision for each.
type DecisionsRequest struct {
	// RequestID is the id of a request or a prefix of it; empty asks for the newest
	// requests.
	RequestID string `json:"request_id"`
	// Limit is the maximum number of requests in the answer; 0 leaves it to the frontend.
	Limit int `json:"limit"`
}
