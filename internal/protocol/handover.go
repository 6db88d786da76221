package protocol

import (
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Moved tells a frontend where a sequence goes on: a request with this Handover to the
// worker's generate endpoint gets what comes after the tokens that were sent.
type Moved struct {
	Worker     string             `json:"worker"`
	InstanceID cluster.InstanceID `json:"instance_id"`
	Handover   string             `json:"handover"`
}

// HandoverRequest is what a decode worker sends to another one's handover endpoint.
// At most one field is set; with none it asks for HandoverRoom.
type HandoverRequest struct {
	Offer  *HandoverOffer  `json:"offer"`
	Commit *HandoverCommit `json:"commit"`
}

// HandoverRoom is how much room a worker has for sequences of others.
type HandoverRoom struct {
	Sequences    int `json:"sequences"` // that hold a place in the batch or wait for one
	MaxSequences int `json:"max_sequences"`
	FreeBlocks   int `json:"free_blocks"` // and those that only the prefix cache holds
	TotalBlocks  int `json:"total_blocks"`
	// EngineID names the worker's NIXL agent, Metadata is its metadata blob.
	EngineID string `json:"engine_id"`
	Metadata []byte `json:"metadata"`
}

// HandoverOffer asks a worker to take over a sequence with its KV. The answer is a
// HandoverGrant, or an error. As long as the caller does not close the stream of the
// answer, and until the deadline, the grant stands.
type HandoverOffer struct {
	// Request is the one that the sequence came with, and what came of it so far, as if
	// its worker had been lost now.
	Request PreprocessedRequest `json:"request"`
	// Room is how many tokens the sequence may have at the commit.
	Room int `json:"room"`
	// MaxModelLen is the largest number of tokens of one sequence at the source.
	MaxModelLen int `json:"max_model_len"`
	// Cached is how many tokens of the prompt were found in a prefix cache, if that has
	// not been told yet.
	Cached     int       `json:"cached"`
	Worker     string    `json:"worker"` // the source
	BlockSize  int       `json:"block_size"`
	BlockBytes int64     `json:"block_bytes"`
	KVLayout   string    `json:"kv_layout"`
	HashSeed   uint64    `json:"hash_seed"`
	Deadline   time.Time `json:"deadline"` // for the commit
}

// HandoverGrant says where the KV of an offered sequence goes.
type HandoverGrant struct {
	Handover string `json:"handover"`  // id of the hand-over
	EngineID string `json:"engine_id"` // the NIXL agent that owns the blocks
	// BlockIDs are the target's blocks for Room tokens, in order; the first
	// CachedBlocks of them hold valid KV already and stay untouched.
	BlockIDs     []int32 `json:"block_ids"`
	CachedBlocks int     `json:"cached_blocks"`
	Ticket       string  `json:"ticket"` // authorizes the writes; see package nixl
}

// HandoverCommit says that all KV is written and the sequence is paused. The answer is
// a HandoverCommitted, or an error: the sequence then stays where it was.
type HandoverCommit struct {
	Handover string `json:"handover"`
	// TokenIDs are those that came since the offer.
	TokenIDs []uint32 `json:"token_ids"`
	Computed int      `json:"computed"` // leading tokens whose KV is in the blocks
	Bytes    int64    `json:"bytes"`    // written
	WriteNS  int64    `json:"write_ns"` // spent on it
}

// HandoverCommitted says that the sequence waits for its frontend.
type HandoverCommitted struct {
	// Until is when it is given up if nobody has asked for it.
	Until time.Time `json:"until"`
}
