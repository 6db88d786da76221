package protocol

import "github.com/dynctl/dynctl/internal/blockhash"

// MaxKeys is the most keys that an [ActivityRequest] may have.
const MaxKeys = 64

// ActivityRequest asks a worker for its sequences and KV transfers. The worker answers
// with one cluster.Activity.
type ActivityRequest struct {
	// Limit is the maximum number of sequences, and of transfers, in the answer. 0, and
	// anything above cluster.MaxActivity, mean cluster.MaxActivity.
	Limit int `json:"limit"`
	// Keys are of embeddings: for the first MaxKeys of them the worker says where they would
	// come from now.
	Keys []blockhash.Key `json:"keys,omitempty"`
}
