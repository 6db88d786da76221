package protocol

// DecisionsRequest asks a frontend for the router decisions that it remembers; it answers
// with one cluster.RouterDecision for each.
type DecisionsRequest struct {
	// RequestID is a request, or the beginning of its id; empty stands for the newest.
	RequestID string `json:"request_id"`
	// Limit is how many requests the answer may be about; 0 leaves that to the frontend.
	Limit int `json:"limit"`
}
