package cluster

import "time"

// MaxActivity is the maximum number of sequences, and of transfers, that an [Activity]
// lists.
const MaxActivity = 64

// Activity lists the sequences and KV transfers of one worker at one moment. Workers do
// not publish it; they send it on request.
type Activity struct {
	Worker string    `json:"worker"`
	At     time.Time `json:"at,omitzero"` // by the worker's clock; zero when it has not answered
	// Sequences lists the sequences in the worker's engine, oldest first, at most
	// MaxActivity. SequencesTotal counts all of them.
	Sequences      []Sequence `json:"sequences"`
	SequencesTotal int        `json:"sequences_total"`
	// Transfers lists the KV transfers in progress, oldest first, at most MaxActivity.
	// TransfersTotal counts all of them.
	Transfers      []Transfer `json:"transfers"`
	TransfersTotal int        `json:"transfers_total"`
	// Images lists what an encode worker has in hand, oldest first, at most MaxActivity.
	// ImagesTotal counts all of them.
	Images      []ImageWork `json:"images,omitempty"`
	ImagesTotal int         `json:"images_total,omitempty"`
	// Embeddings has an entry for each key of the request, in order; none from a worker whose
	// model takes no images.
	Embeddings []EmbeddingsAt `json:"embeddings,omitempty"`
	// Error says why the worker did not answer; empty when it did.
	Error string `json:"error,omitempty"`
}

// Sequence is one request in the engine of a worker. One request of a client can be a
// sequence of a prefill and of a decode worker at the same time.
type Sequence struct {
	ID        string        `json:"id"`         // in the engine
	RequestID string        `json:"request_id"` // of the stream that a client reads
	State     SequenceState `json:"state"`
	// PromptTokens counts the tokens of the prompt. CachedTokens of them were in the
	// prefix cache at admission. OutTokens counts the tokens generated so far, including
	// those from a worker that ran the sequence before.
	PromptTokens int `json:"prompt_tokens"`
	CachedTokens int `json:"cached_tokens"`
	OutTokens    int `json:"out_tokens"`
	// ComputedTokens counts the tokens, prompt and output, whose KV is computed. That KV
	// occupies Blocks blocks.
	ComputedTokens int   `json:"computed_tokens"`
	Blocks         int   `json:"kv_blocks"`
	AgeMS          int64 `json:"age_ms"` // since the sequence came to this worker
}

// SequenceState is the stage of a sequence in an engine.
type SequenceState string

// The states of a sequence.
const (
	SequenceWaiting   SequenceState = "waiting"   // waits for admission
	SequencePreempted SequenceState = "preempted" // lost its blocks to other sequences and waits for admission again
	SequenceRemote    SequenceState = "remote"    // a prefill worker computes its KV
	SequenceEncoding  SequenceState = "encoding"  // waits for the embeddings of images in its prompt
	SequencePrefill   SequenceState = "prefill"   // this worker computes its prompt
	SequenceDecode    SequenceState = "decode"    // this worker generates its output
	SequenceMoving    SequenceState = "moving"    // paused while it moves to another worker
)

// EmbeddingsAt says where a worker would get the embeddings of an image now.
type EmbeddingsAt struct {
	Cached  bool   `json:"cached"`            // it has them, or they are being computed for it
	Encoder string `json:"encoder,omitempty"` // else the worker that would compute them; empty if none can
	Why     string `json:"why,omitempty"`     // why that one
}

// ImageWork is one image that an encode worker has in hand.
type ImageWork struct {
	RequestID string     `json:"request_id"` // of the stream that a client reads
	Worker    string     `json:"worker"`     // that wants the embeddings
	State     ImageState `json:"state"`
	Tokens    int        `json:"tokens"` // positions of the prompt that the embeddings fill
	Cached    bool       `json:"cached"` // nobody had to compute them for this request
	AgeMS     int64      `json:"age_ms"` // since it was asked for
}

// ImageState is how far an encode worker is with an image.
type ImageState string

// The states of an image.
const (
	ImageEncoding ImageState = "encoding" // waits for its turn, or its embeddings are computed
	ImageOffered  ImageState = "offered"  // the worker that wants the embeddings may read them
)

// Transfer is a transfer of the KV of one request from or to a worker.
type Transfer struct {
	RequestID string            `json:"request_id"`
	Direction TransferDirection `json:"direction"`
	// Peer is the worker at the other end. Transport is the NIXL transport between the
	// two. Both are empty while unknown.
	Peer      string        `json:"peer,omitempty"`
	Transport string        `json:"transport,omitempty"`
	Kind      TransferKind  `json:"kind"`
	State     TransferState `json:"state"`
	// Blocks counts the KV blocks to transfer, BlocksDone those already transferred.
	// Bytes and BytesDone count the same in bytes. The Done fields are null where only
	// the other end knows the progress.
	Blocks     int    `json:"kv_blocks"`
	BlocksDone *int   `json:"kv_blocks_done"`
	Bytes      int64  `json:"bytes"`
	BytesDone  *int64 `json:"bytes_done"`
	AgeMS      int64  `json:"age_ms"` // since it was requested
}

// TransferDirection is the direction of a transfer as seen from the worker that reports
// it.
type TransferDirection string

// The directions of a transfer.
const (
	TransferIn  TransferDirection = "in"
	TransferOut TransferDirection = "out"
)

// TransferKind names the protocol step that a transfer belongs to, and so which side
// moves the data.
type TransferKind string

// The kinds of transfers.
const (
	TransferWrite    TransferKind = "write"    // a prefill worker writes KV while it computes it
	TransferRead     TransferKind = "read"     // a decode worker reads KV that a prefill worker holds
	TransferHandover TransferKind = "handover" // one decode worker writes the KV of a running sequence to another
)

// TransferState is the progress of a transfer.
type TransferState string

// The states of a transfer.
const (
	TransferWaits  TransferState = "waits"  // no block was transferred yet
	TransferActive TransferState = "active" // blocks are being transferred
)
