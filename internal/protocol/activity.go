package protocol

// ActivityRequest asks a worker for its sequences and transfers; it answers with one
// cluster.Activity.
type ActivityRequest struct {
	// Limit is how many of each the answer may list; 0, and more than
	// cluster.MaxActivity, stand for that.
	Limit int `json:"limit"`
}
