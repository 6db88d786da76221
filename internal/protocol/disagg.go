package protocol

import (
	"encoding/json"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// The strategies of disaggregation. The frontend decides for each request and writes the
// strategy into it, so that workers need not agree on the setting.
const (
	// StrategyDecodeFirst chooses the decode worker first. That worker decides whether a
	// prefill worker shall write the KV into its blocks. It is the default.
	StrategyDecodeFirst = "decode-first"
	// StrategyPrefillFirst lets the frontend decide, which then also chooses the prefill
	// worker.
	StrategyPrefillFirst = "prefill-first"
)

// PrefillWay says how the KV of a remote prefill reaches the decode worker.
type PrefillWay string

// The ways of a remote prefill.
const (
	WayQueue      PrefillWay = "queue"      // written by the prefill worker that takes the message from the prefill queue
	WayDirect     PrefillWay = "direct"     // written by a prefill worker that the decode worker called
	WayPull       PrefillWay = "pull"       // read by the decode worker from blocks that a prefill worker holds for it
	WayBackground PrefillWay = "background" // written while it is computed; both workers meet in a bootstrap room
)

// DisaggHints says how one request is disaggregated.
type DisaggHints struct {
	// Force is "", "remote" or "local": it overrides the decision for this request.
	Force string `json:"force"`
	// Enforce has the decode worker refuse the request, with requestplane.KindNotPrefilled,
	// where it would prefill the prompt because prefill workers cannot.
	Enforce bool `json:"enforce,omitempty"`
	// Strategy is StrategyDecodeFirst, StrategyPrefillFirst, or empty for StrategyDecodeFirst.
	Strategy string `json:"strategy"`
	// Why is the frontend's reason for a local prefill.
	Why string `json:"why"`
	// Prefills tells a decode worker that decides itself about the prefill workers.
	Prefills PrefillHints `json:"prefills,omitzero"`
	// Deadline is when a remote prefill that the frontend has started is given up.
	Deadline time.Time `json:"deadline"`
	// Params tells a decode worker which blocks hold its prompt's KV; nil without. At
	// most one of Params and Bootstrap is set.
	Params *DisaggregatedParams `json:"disaggregated_params"`
	// Bootstrap names the room where prefill and decode worker of a request meet; nil
	// without.
	Bootstrap *BootstrapInfo `json:"bootstrap_info"`
}

// PrefillHints describe the mean prefill worker of a model, as a frontend knows it; zero
// where that is unknown.
type PrefillHints struct {
	Rate         float64 `json:"tokens_per_s"`          // of prompts
	TransferRate float64 `json:"transfer_tokens_per_s"` // of KV
	Prompts      float64 `json:"prompts"`               // that it is computing
	Waiting      int     `json:"waiting_tokens"`        // that these have left to compute
	Cached       int     `json:"cached_tokens"`         // of this prompt, in its cache
}

// KVIdentity holds the properties that must be equal for two workers to exchange KV
// blocks.
type KVIdentity struct {
	ModelSum   string `json:"mdc_sum"`
	BlockSize  int    `json:"block_size"` // tokens
	BlockBytes int64  `json:"block_bytes"`
	// KVLayout names how keys and values lie in a block and their type.
	KVLayout string `json:"kv_layout"`
	HashSeed uint64 `json:"hash_seed"`
}

// DisaggregatedParams is a prefill worker's answer: the blocks that hold the KV of a
// prompt, and the ticket under which they may be read until the deadline.
type DisaggregatedParams struct {
	Worker   string             `json:"worker"` // the prefill worker
	ID       cluster.InstanceID `json:"worker_id"`
	EngineID string             `json:"engine_id"` // its NIXL agent
	KVIdentity
	// BlockIDs are the blocks of the prompt's first Tokens tokens: all but the last,
	// which the decode worker computes.
	BlockIDs []int32   `json:"block_ids"`
	Tokens   int       `json:"tokens"`
	Ticket   string    `json:"ticket"`
	Deadline time.Time `json:"deadline"`
	// Handoff is what a server of an engine that others wrote tells another one, byte for
	// byte. Only Worker, ID, Tokens, Deadline and what follows are set beside it. RequestID is
	// that of the first leg: some servers know the second one by it. Cached counts the tokens of
	// the prompt that the prefill server found in its cache, unless CacheUnknown.
	Handoff   json.RawMessage `json:"handoff,omitempty"`
	RequestID string          `json:"request_id,omitempty"`
	Cached    int             `json:"cached_tokens,omitempty"`

	CacheUnknown bool `json:"cache_unknown,omitempty"`
}

// BootstrapInfo names a room at a prefill worker's bootstrap endpoint. The prefill
// worker answers its frontend with an empty EngineOutput when the room is open.
type BootstrapInfo struct {
	Worker string             `json:"worker"` // the prefill worker
	ID     cluster.InstanceID `json:"worker_id"`
	// Address is the address of the endpoint, in the form of cluster.Transport.
	Address string `json:"bootstrap_address"`
	Room    uint64 `json:"bootstrap_room"`
	// Place is where servers of an engine that others wrote meet; nil for a room of ours.
	Place *cluster.ServerPlace `json:"place,omitempty"`
}

// JoinRoom is sent by a decode worker to a bootstrap endpoint. It holds the worker's
// reservation, which the prefill worker of that room fills. The answer is a
// PrefillNotice.
type JoinRoom struct {
	Room    uint64               `json:"bootstrap_room"`
	Request RemotePrefillRequest `json:"request"`
}
