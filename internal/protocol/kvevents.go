package protocol

import (
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// KVEventsRequest asks a worker for the KV events of an epoch from one id on.
type KVEventsRequest struct {
	Epoch uint64 `json:"epoch"`
	From  uint64 `json:"from"`
}

// KVEventsPage is a part of the answer. If the worker still has the events, the pages hold
// them, in order. Otherwise they hold the hashes of all blocks that its prefix cache finds,
// and the reader forgets what it had.
type KVEventsPage struct {
	Epoch uint64 `json:"epoch"`
	// Next is the id of the event that follows what all pages say.
	Next uint64 `json:"next"`
	// All is set when the pages hold all blocks.
	All bool `json:"all"`
	// Time is the worker's clock when it looked at its cache.
	Time   time.Time         `json:"time"`
	Events []cluster.KVEvent `json:"events"`
	Blocks []uint64          `json:"blocks"` // sequence hashes
}
