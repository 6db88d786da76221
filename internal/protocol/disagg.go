package protocol

import (
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Strategies of disaggregation. The frontend decides for each request and says so in
// it, so that workers need not agree on the setting.
const (
	// StrategyQueue: the decode worker is chosen first and decides whether a prefill
	// worker shall write the KV into its blocks. A request that names no strategy has
	// this one.
	StrategyQueue = "decode-first"
	// StrategyRouter: the frontend has decided, and has chosen the prefill worker.
	StrategyRouter = "prefill-first"
)

// PrefillWay is how the KV of a remote prefill comes to the decode worker.
type PrefillWay string

// Ways of a remote prefill.
const (
	WayQueue      PrefillWay = "queue"      // pushed by whoever takes the message from the prefill queue
	WayDirect     PrefillWay = "direct"     // pushed by a prefill worker that the decode worker called
	WayPull       PrefillWay = "pull"       // read by the decode worker from blocks held for it
	WayBackground PrefillWay = "background" // pushed while it is computed, after meeting in a bootstrap room
)

// DisaggHints says how a request is disaggregated.
type DisaggHints struct {
	// Force is "", "remote" or "local": it overrides the decision for this request.
	Force string `json:"force"`
	// Strategy is StrategyQueue, StrategyRouter, or empty for StrategyQueue.
	Strategy string `json:"strategy"`
	// Why is the reason of a frontend that decided for a local prefill.
	Why string `json:"why"`
	// Deadline ends a remote prefill that the frontend has begun.
	Deadline time.Time `json:"deadline"`
	// Params, for a decode worker, say where its prompt's KV is held; at most one of
	// Params and Bootstrap is set.
	Params *DisaggregatedParams `json:"disaggregated_params"`
	// Bootstrap is where prefill and decode worker of a request meet.
	Bootstrap *BootstrapInfo `json:"bootstrap_info"`
}

// KVIdentity is all that two workers must agree on to exchange KV blocks.
type KVIdentity struct {
	ModelSum   string `json:"mdc_sum"`
	BlockSize  int    `json:"block_size"` // tokens
	BlockBytes int64  `json:"block_bytes"`
	// KVLayout names how keys and values lie in a block and their type.
	KVLayout string `json:"kv_layout"`
	HashSeed uint64 `json:"hash_seed"`
}

// DisaggregatedParams is what a prefill worker answers with: where the KV of a prompt
// is held, and the ticket under which it may be read until the deadline.
type DisaggregatedParams struct {
	Worker   string             `json:"worker"` // the prefill worker
	ID       cluster.InstanceID `json:"worker_id"`
	EngineID string             `json:"engine_id"` // its NIXL agent
	KVIdentity
	// BlockIDs are the blocks of the first Tokens tokens of the prompt, which are all
	// but the last one: decode computes that.
	BlockIDs []int32   `json:"block_ids"`
	Tokens   int       `json:"tokens"`
	Ticket   string    `json:"ticket"`
	Deadline time.Time `json:"deadline"`
}

// BootstrapInfo names a room at a prefill worker's bootstrap endpoint. The prefill
// worker answers its frontend with an empty EngineOutput when the room is open.
type BootstrapInfo struct {
	Worker string             `json:"worker"` // the prefill worker
	ID     cluster.InstanceID `json:"worker_id"`
	// Address is the endpoint on the request plane, as in cluster.Transport.
	Address string `json:"bootstrap_address"`
	Room    uint64 `json:"bootstrap_room"`
}

// JoinRoom is what a decode worker sends to a bootstrap endpoint: its reservation,
// to be filled by whoever computes the prompt in that room. The answer is a
// PrefillNotice.
type JoinRoom struct {
	Room    uint64               `json:"bootstrap_room"`
	Request RemotePrefillRequest `json:"request"`
}
