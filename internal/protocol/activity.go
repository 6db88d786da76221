package protocol

// ActivityRequest asks a worker for its sequences and KV transfers. The worker answers
// with one cluster.Activity.
type ActivityRequest struct {
	// Limit is the maximum number of sequences, and of transfers, in the answer. 0, and
	// anything above cluster.MaxActivity, mean cluster.MaxActivity.
	Limit int `json:"limit"`
}
