package protocol

import "time"

// PreprocessedRequest is what a frontend sends to a worker: one prompt as token
// ids, and how to continue it.
type PreprocessedRequest struct {
	RequestID string `json:"request_id"`
	// Tenant names who sends the request, a client by key or address: workers give
	// tenants equal shares. It is a name that tells nothing else.
	Tenant   string   `json:"tenant"`
	Model    string   `json:"model"`
	ModelSum string   `json:"mdc_sum"` // digest of the frontend's card; must equal the worker's
	TokenIDs []uint32 `json:"token_ids"`
	// Generated is how many of the last TokenIDs are output of an earlier attempt
	// that was migrated; they count as output for sampling positions and limits.
	Generated  int             `json:"generated"`
	Stop       StopConditions  `json:"stop_conditions"`
	Sampling   SamplingOptions `json:"sampling_options"`
	Output     OutputOptions   `json:"output_options"`
	ReceivedAt time.Time       `json:"received_at"` // at the frontend
	// Guided, if not nil, constrains the output.
	Guided      *Guided     `json:"guided"`
	Annotations []string    `json:"annotations"`
	Disagg      DisaggHints `json:"disagg"`
	// Handover, if not empty, is the id of a sequence that came to this worker with its
	// KV (see Moved). A worker that does not have it, or has it with other tokens than
	// TokenIDs, treats the request as any other.
	Handover string `json:"handover"`
}

// Advance takes in tokens that were generated: the request then asks for what comes
// after them, from whoever gets it.
func (r *PreprocessedRequest) Advance(tokens []uint32) {
	n := len(tokens)
	r.TokenIDs = append(r.TokenIDs, tokens...)
	r.Generated += n
	r.Stop.MaxTokens -= n
	r.Stop.MinTokens = max(r.Stop.MinTokens-n, 0)
}

// StopConditions say when generation ends. Stop strings are not among them: the
// frontend, which owns the tokenizer, matches those and cancels.
type StopConditions struct {
	// MaxTokens is counted without Generated. 0 asks for the log probabilities of the
	// prompt alone.
	MaxTokens int `json:"max_tokens"`
	// MinTokens, counted without Generated, must come before an id of the two lists
	// below may be drawn.
	MinTokens int `json:"min_tokens"`
	// StopTokenIDs end the sequence and are not part of the output: end-of-sequence
	// and user ids. StopTokenIDsVisible end it as its last token.
	StopTokenIDs        []uint32 `json:"stop_token_ids"`
	StopTokenIDsVisible []uint32 `json:"stop_token_ids_visible"`
}

// FinishReason says why a sequence ended.
type FinishReason string

// Finish reasons.
const (
	FinishNone      FinishReason = ""
	FinishStop      FinishReason = "stop"   // an end-of-sequence or stop token, or a stop string
	FinishLength    FinishReason = "length" // max_tokens or the context length
	FinishCancelled FinishReason = "cancelled"
	FinishError     FinishReason = "error"
	// FinishMoved ends the stream of one worker: the answer goes on at another one.
	FinishMoved FinishReason = "moved"
)

// EngineOutput is one message of a worker's answer stream.
type EngineOutput struct {
	TokenIDs []uint32     `json:"token_ids"`
	Finish   FinishReason `json:"finish_reason"`
	Error    string       `json:"error"`
	// Logprobs are those of TokenIDs, if the request asks for them.
	Logprobs *Logprobs `json:"log_probs"`
	// PromptLogprobs, on the first output if asked for, are those of the tokens of
	// the prompt after the first.
	PromptLogprobs *Logprobs `json:"prompt_log_probs"`
	// Timing is set on the first output.
	Timing *Timing `json:"timing"`
	// Usage is set on the last output.
	Usage *Usage `json:"completion_usage"`
	// Moved is set with FinishMoved.
	Moved *Moved `json:"moved"`
	// Params is the one answer of a prefill worker that holds KV for a decode worker.
	Params *DisaggregatedParams `json:"disaggregated_params"`
}

// Timing tells where the prompt was computed and how long the phases took.
type Timing struct {
	Worker     string `json:"worker"`
	Prefill    string `json:"prefill"`     // prefill worker's name or "local"
	PrefillWhy string `json:"prefill_why"` // reason for local
	// PrefillWay is how the KV came, empty for local.
	PrefillWay   PrefillWay `json:"prefill_way"`
	QueueNS      int64      `json:"queue_ns"`   // waiting for admission
	PrefillNS    int64      `json:"prefill_ns"` // admission to first token
	CachedTokens int        `json:"cached_tokens"`
}

// Usage counts tokens of one request.
type Usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	CachedTokens     int `json:"cached_tokens"`
}

// RemotePrefillRequest asks any prefill worker to compute the KV blocks of a
// prompt and to write them into blocks that a decode worker has reserved.
type RemotePrefillRequest struct {
	RequestID string   `json:"request_id"`
	Tenant    string   `json:"tenant"` // as in PreprocessedRequest
	Attempt   int      `json:"attempt"`
	ModelSum  string   `json:"mdc_sum"`
	TokenIDs  []uint32 `json:"prompt_token_ids"` // without the last prompt token: decode computes it
	// EngineID names the decode worker's NIXL agent; Worker is its human name.
	EngineID string `json:"engine_id"`
	Worker   string `json:"worker"`
	// BlockIDs are the decode worker's blocks for the whole prompt, in order;
	// the first ComputedBlocks of them already hold valid KV and stay untouched.
	BlockIDs       []int32 `json:"block_ids"`
	ComputedBlocks int     `json:"computed_blocks"`
	BlockSize      int     `json:"block_size"`
	BlockBytes     int64   `json:"block_bytes"`
	// KVLayout names how keys and values lie in a block and their type.
	KVLayout string `json:"kv_layout"`
	HashSeed uint64 `json:"hash_seed"`
	// Ticket authorizes the writes; see package nixl.
	Ticket   string    `json:"ticket"`
	Deadline time.Time `json:"deadline"`
	// EnqueuedAt is when the decode worker put it on the queue.
	EnqueuedAt time.Time `json:"enqueued_at"`
}

// PrefillPhase says how far a remote prefill is.
type PrefillPhase string

// Phases of a remote prefill.
const (
	PrefillStarted PrefillPhase = "started" // a prefill worker has begun
	PrefillDone    PrefillPhase = "done"    // all KV is in place
	PrefillFailed  PrefillPhase = "failed"  // this attempt will not succeed
	// PrefillRead goes the other way: the decode worker has read the held KV that
	// Ticket stands for, or does not want it, and will not read again.
	PrefillRead PrefillPhase = "read"
)

// PrefillNotice is the NIXL notification by which a prefill worker tells a decode
// worker how a remote prefill goes; after done and failed it writes no more. A decode
// worker that reads held KV sends one, too.
type PrefillNotice struct {
	RequestID string       `json:"request_id"`
	Attempt   int          `json:"attempt"`
	Ticket    string       `json:"ticket"`
	Phase     PrefillPhase `json:"phase"`
	Worker    string       `json:"worker"` // the prefill worker
	Tokens    int          `json:"tokens"` // done: tokens whose KV is now in place
	Error     string       `json:"error"`  // failed: why
	Cached    int          `json:"cached"` // done: tokens found in the prefill worker's cache
	ComputeNS int64        `json:"compute_ns"`
	WriteNS   int64        `json:"write_ns"`
	// ExposedNS is from the end of the computation to the last block in place: what the
	// writing took that was not hidden behind computing.
	ExposedNS int64 `json:"exposed_ns"`
	Bytes     int64 `json:"bytes"`
}
