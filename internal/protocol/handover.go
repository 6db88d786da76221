package protocol

import (
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Moved tells a frontend which worker continues a sequence. The frontend sends a request
// with this Handover to that worker's generate endpoint. The answer starts after the
// tokens that it already has.
type Moved struct {
	Worker     string             `json:"worker"`
	InstanceID cluster.InstanceID `json:"instance_id"`
	Handover   string             `json:"handover"`
}

// HandoverRequest is sent by a decode worker to the handover endpoint of another one. At
// most one field is set. Without any, it asks for HandoverRoom.
type HandoverRequest struct {
	Offer  *HandoverOffer  `json:"offer"`
	Commit *HandoverCommit `json:"commit"`
}

// HandoverRoom reports a worker's capacity for sequences of other workers.
type HandoverRoom struct {
	Sequences    int `json:"sequences"` // that hold a place in the batch or wait for one
	MaxSequences int `json:"max_sequences"`
	FreeBlocks   int `json:"free_blocks"` // including those that only the prefix cache holds
	TotalBlocks  int `json:"total_blocks"`
	// EngineID names the worker's NIXL agent. Metadata is the agent's metadata blob.
	EngineID string `json:"engine_id"`
	Metadata []byte `json:"metadata"`
}

// HandoverOffer asks a worker to take over a sequence with its KV. The answer is a
// HandoverGrant, or an error. The grant is valid until the deadline, or until the caller
// closes the stream of the answer.
type HandoverOffer struct {
	// Request is the original request, with the output so far, as it would be migrated if
	// the source were lost now.
	Request PreprocessedRequest `json:"request"`
	// Room is the maximum number of tokens of the sequence at the commit.
	Room int `json:"room"`
	// MaxModelLen is the source's limit on the tokens of one sequence.
	MaxModelLen int `json:"max_model_len"`
	// Cached counts the prompt tokens found in a prefix cache, unless an output has
	// reported them already.
	Cached     int       `json:"cached"`
	Worker     string    `json:"worker"` // the source worker
	BlockSize  int       `json:"block_size"`
	BlockBytes int64     `json:"block_bytes"`
	KVLayout   string    `json:"kv_layout"`
	HashSeed   uint64    `json:"hash_seed"`
	Deadline   time.Time `json:"deadline"` // for the commit
}

// HandoverGrant names the blocks that receive the KV of an offered sequence.
type HandoverGrant struct {
	Handover string `json:"handover"`  // id of the hand-over
	EngineID string `json:"engine_id"` // the NIXL agent that owns the blocks
	// BlockIDs are the target's blocks for Room tokens, in order; the first
	// CachedBlocks of them hold valid KV already and stay untouched.
	BlockIDs     []int32 `json:"block_ids"`
	CachedBlocks int     `json:"cached_blocks"`
	Ticket       string  `json:"ticket"` // authorizes the writes; see package nixl
}

// HandoverCommit says that all KV is written and the sequence is paused. The answer is a
// HandoverCommitted, or an error. After an error the sequence stays at the source.
type HandoverCommit struct {
	Handover string `json:"handover"`
	// TokenIDs are the tokens generated since the offer.
	TokenIDs []uint32 `json:"token_ids"`
	Computed int      `json:"computed"` // leading tokens whose KV is in the blocks
	Bytes    int64    `json:"bytes"`    // written
	WriteNS  int64    `json:"write_ns"` // duration of the writes
	// Transport is that by which the blocks were moved.
	Transport string `json:"transport"`
}

// HandoverCommitted confirms that the target holds the sequence until its frontend asks
// for it.
type HandoverCommitted struct {
	// Until is when the target gives the sequence up if no frontend has asked for it.
	Until time.Time `json:"until"`
}
