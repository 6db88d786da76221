package cluster

import "time"

// MaxActivity is how many sequences, and how many transfers, an [Activity] lists at most.
const MaxActivity = 64

// Activity is what one worker has in hand at one moment. Workers tell it on request only.
type Activity struct {
	Worker string    `json:"worker"`
	At     time.Time `json:"at,omitzero"` // by the worker's clock; zero when it has not answered
	// Sequences are those of its engine, the oldest first; SequencesTotal says how many
	// there are.
	Sequences      []Sequence `json:"sequences"`
	SequencesTotal int        `json:"sequences_total"`
	// Transfers are the KV transfers that are not over, the oldest first, and
	// TransfersTotal how many there are.
	Transfers      []Transfer `json:"transfers"`
	TransfersTotal int        `json:"transfers_total"`
	// Error says why the worker has not told.
	Error string `json:"error,omitempty"`
}

// Sequence is one request in the engine of a worker. One request of a client can be a
// sequence of a prefill and of a decode worker at the same time.
type Sequence struct {
	ID        string        `json:"id"`         // in the engine
	RequestID string        `json:"request_id"` // of the stream that a client reads
	State     SequenceState `json:"state"`
	// PromptTokens are those of the request; of them CachedTokens were found in the prefix
	// cache at admission. OutTokens were generated, here or where it ran before.
	PromptTokens int `json:"prompt_tokens"`
	CachedTokens int `json:"cached_tokens"`
	OutTokens    int `json:"out_tokens"`
	// ComputedTokens is of how many tokens, prompt and output, the KV is in Blocks blocks.
	ComputedTokens int   `json:"computed_tokens"`
	Blocks         int   `json:"kv_blocks"`
	AgeMS          int64 `json:"age_ms"` // since it came here
}

// SequenceState is where a sequence is in its life.
type SequenceState string

// The states of a sequence.
const (
	SequenceWaiting   SequenceState = "waiting"   // for admission
	SequencePreempted SequenceState = "preempted" // has lost its blocks to others, and waits for admission
	SequenceRemote    SequenceState = "remote"    // its KV is computed elsewhere
	SequencePrefill   SequenceState = "prefill"   // its prompt is computed here
	SequenceDecode    SequenceState = "decode"    // its output is generated
	SequenceMoving    SequenceState = "moving"    // stands still between two workers
)

// Transfer is KV of one request on its way from or to a worker.
type Transfer struct {
	RequestID string            `json:"request_id"`
	Direction TransferDirection `json:"direction"`
	// Peer is the worker at the other end, Transport how the two are connected; both are
	// empty while nobody knows.
	Peer      string        `json:"peer,omitempty"`
	Transport string        `json:"transport,omitempty"`
	Kind      TransferKind  `json:"kind"`
	State     TransferState `json:"state"`
	// Blocks are to be moved. BlocksDone have been; it is null where only the other end
	// knows. The same goes for Bytes and BytesDone.
	Blocks     int    `json:"kv_blocks"`
	BlocksDone *int   `json:"kv_blocks_done"`
	Bytes      int64  `json:"bytes"`
	BytesDone  *int64 `json:"bytes_done"`
	AgeMS      int64  `json:"age_ms"` // since it was asked for
}

// TransferDirection is seen from the worker that tells of the transfer.
type TransferDirection string

// Directions.
const (
	TransferIn  TransferDirection = "in"
	TransferOut TransferDirection = "out"
)

// TransferKind says why KV moves and who moves it.
type TransferKind string

// Kinds of transfers.
const (
	TransferWrite    TransferKind = "write"    // a prefill worker writes as it computes
	TransferRead     TransferKind = "read"     // a decode worker reads what a prefill worker holds
	TransferHandover TransferKind = "handover" // from one decode worker to another
)

// TransferState is how far a transfer is.
type TransferState string

// The states of a transfer.
const (
	TransferWaits  TransferState = "waits"  // nothing was moved yet
	TransferActive TransferState = "active" // blocks are being moved
)
