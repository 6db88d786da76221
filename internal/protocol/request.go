package protocol

import (
	"bytes"
	"encoding/json"
	"time"
)

// PreprocessedRequest is sent by a frontend to a worker: one prompt as token ids, with
// the options of its continuation.
type PreprocessedRequest struct {
	RequestID string `json:"request_id"`
	// Tenant identifies the client, by key or address. Workers give tenants equal shares.
	// The name reveals nothing else about the client.
	Tenant   string `json:"tenant"`
	Model    string `json:"model"`
	ModelSum string `json:"mdc_sum"` // digest of the frontend's card; must equal the worker's
	// Adapter is the LoRA adapter that answers; empty: the model itself. ModelSum is
	// the digest of the model with it (cluster.AdapterDigest) then, so that no worker without adapters takes the request.
	Adapter  string   `json:"lora_name,omitempty"`
	TokenIDs []uint32 `json:"token_ids"`
	// Body is the client's request for a model without files, whose prompts only its
	// servers tokenize: JSON for the OpenAI endpoint API, without fields that control
	// workers. TokenIDs is empty then, and answers have Raw.
	Body json.RawMessage `json:"body,omitempty"`
	API  API             `json:"api,omitempty"`
	// Media are the images of the prompt, in order of position.
	Media []MediaPart `json:"media,omitempty"`
	// Generated counts how many of the last TokenIDs were generated before the request
	// was migrated. They count as output for sampling positions and limits.
	Generated  int             `json:"generated"`
	Stop       StopConditions  `json:"stop_conditions"`
	Sampling   SamplingOptions `json:"sampling_options"`
	Output     OutputOptions   `json:"output_options"`
	ReceivedAt time.Time       `json:"received_at"` // at the frontend
	// Guided, if not nil, constrains the output.
	Guided      *Guided  `json:"guided"`
	Annotations []string `json:"annotations"`
	// RequiredTaints are those that a worker must have to take over the request.
	RequiredTaints []string    `json:"required_taints,omitempty"`
	Disagg         DisaggHints `json:"disagg"`
	// Handover is the id of a sequence that was moved to this worker with its KV (see
	// Moved); empty otherwise. A worker that lacks that sequence, or has it with other
	// tokens than TokenIDs, computes the request like any other.
	Handover string `json:"handover"`
}

// API is an endpoint of the OpenAI API.
type API string

// The endpoints, by their paths below /v1/.
const (
	APIChat        API = "chat/completions"
	APICompletions API = "completions"
)

// bytesPerToken estimates the tokens of a prompt that only its server tokenizes.
const bytesPerToken = 4

// tokensPerMedia estimates those of an image, a sound or a video that a body contains.
const tokensPerMedia = 1024

// PromptTokens counts the tokens of the prompt; of a Body it is an estimate, at least 1.
func (r *PreprocessedRequest) PromptTokens() int {
	if r.Body == nil {
		return len(r.TokenIDs)
	}
	media, size := contained(r.Body)
	return max((len(r.Body)-size)/bytesPerToken+media*tokensPerMedia, 1)
}

// contained counts the images, sounds and videos that a body of a chat contains in Base64, and
// their bytes.
func contained(body []byte) (n, size int) {
	n, size = between(body, ";base64,")
	sounds, more := between(body, `"input_audio"`, `"data"`, `"`)
	return n + sounds, size + more
}

// between counts the texts from marks, which follow each other, to the next quote, and their bytes.
func between(body []byte, marks ...string) (n, size int) {
	for {
		for _, mark := range marks {
			var ok bool
			if _, body, ok = bytes.Cut(body, []byte(mark)); !ok {
				return n, size
			}
		}
		end := bytes.IndexByte(body, '"')
		if end < 0 {
			return n, size
		}
		n, size, body = n+1, size+end, body[end:]
	}
}

// Advance appends generated tokens to the prompt and adapts the limits, so that any
// worker can continue the request after them.
func (r *PreprocessedRequest) Advance(tokens []uint32) {
	n := len(tokens)
	r.TokenIDs = append(r.TokenIDs, tokens...)
	r.Generated += n
	r.Stop.MaxTokens -= n
	r.Stop.MinTokens = max(r.Stop.MinTokens-n, 0)
}

// StopConditions say when generation ends. Stop strings are not among them: the frontend,
// which owns the tokenizer, matches those and cancels the request.
type StopConditions struct {
	// MaxTokens limits the output, without Generated. 0 asks only for the log
	// probabilities of the prompt.
	MaxTokens int `json:"max_tokens"`
	// MinTokens is the number of output tokens, without Generated, before which the ids
	// in the two lists below are not sampled.
	MinTokens int `json:"min_tokens"`
	// StopTokenIDs end the sequence and are not part of the output: end-of-sequence and
	// user ids. StopTokenIDsVisible also end it, but stay in the output as its last
	// token.
	StopTokenIDs        []uint32 `json:"stop_token_ids"`
	StopTokenIDsVisible []uint32 `json:"stop_token_ids_visible"`
}

// FinishReason says why a sequence ended.
type FinishReason string

// The finish reasons.
const (
	FinishNone      FinishReason = ""
	FinishStop      FinishReason = "stop"   // an end-of-sequence or stop token, or a stop string
	FinishLength    FinishReason = "length" // max_tokens or the context length
	FinishCancelled FinishReason = "cancelled"
	FinishError     FinishReason = "error"
	// FinishMoved ends the stream of one worker because another worker continues the
	// answer.
	FinishMoved FinishReason = "moved"
)

// EngineOutput is one message of a worker's answer stream.
type EngineOutput struct {
	TokenIDs []uint32     `json:"token_ids"`
	Finish   FinishReason `json:"finish_reason"`
	Error    string       `json:"error"`
	// Logprobs holds the log probabilities of TokenIDs; nil unless the request asks for
	// them.
	Logprobs *Logprobs `json:"log_probs"`
	// PromptLogprobs holds the log probabilities of the prompt's tokens after the first.
	// It is set on the first output, if the request asks for it.
	PromptLogprobs *Logprobs `json:"prompt_log_probs"`
	// Timing is set on the first output, and on that of a prefill worker that has computed
	// a prompt for a decode worker.
	Timing *Timing `json:"timing"`
	// Usage is set on the last output.
	Usage *Usage `json:"completion_usage"`
	// DecodeNS is the time from the first token that the worker computed to the last one. It is
	// set on the last output, and with FinishMoved.
	DecodeNS int64 `json:"decode_ns"`
	// Moved is set with FinishMoved.
	Moved *Moved `json:"moved"`
	// Params is set on the only answer of a prefill worker that holds KV for a decode
	// worker.
	Params *DisaggregatedParams `json:"disaggregated_params"`
	// Raw answers a request with a Body: one chunk of a stream of the OpenAI API, or the
	// whole object if the client asked for no stream.
	Raw json.RawMessage `json:"raw,omitempty"`
	// Text is set in place of TokenIDs by servers that do not tell the tokens of their
	// answers. It stays within dynamod: workers send tokens.
	Text string `json:"text,omitempty"`
}

// Timing says where the prompt was computed, and how long each phase took.
type Timing struct {
	Worker     string `json:"worker"`
	Prefill    string `json:"prefill"`     // prefill worker's name or "local"
	PrefillWhy string `json:"prefill_why"` // reason for local
	// PrefillWay says how the KV was transferred; empty for a local prefill.
	PrefillWay   PrefillWay `json:"prefill_way"`
	QueueNS      int64      `json:"queue_ns"`   // waiting for admission
	PrefillNS    int64      `json:"prefill_ns"` // admission to first token
	CachedTokens int        `json:"cached_tokens"`
	// CacheUnknown is set where the engine does not tell CachedTokens, or only at the end.
	CacheUnknown bool `json:"cache_unknown,omitempty"`
	// ComputeNS is how long the prefill worker computed, the wait for embeddings included; 0 for
	// a local prefill, and where only the prefill worker knows it (WayPull).
	ComputeNS int64 `json:"compute_ns"`
	// KV is about the KV that came from a prefill worker or by a hand-over; zero if none did.
	KV KVMoved `json:"kv,omitzero"`
	// Encoded is about the images of the prompt.
	Encoded Encoded `json:"encoded,omitzero"`
}

// KVMoved says how the KV of a prompt came to a decode worker.
type KVMoved struct {
	NS        int64  `json:"ns"`         // in transfers, some of it during the computation
	ExposedNS int64  `json:"exposed_ns"` // from the end of the computation until all KV was here; 0 for a hand-over
	Bytes     int64  `json:"bytes"`
	Transport string `json:"transport"`
}

// Usage counts the tokens of one request.
type Usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	CachedTokens     int `json:"cached_tokens"`
}

// RemotePrefillRequest asks for the KV blocks of a prompt. Any prefill worker may take
// it. That worker writes the blocks into those that a decode worker has reserved.
type RemotePrefillRequest struct {
	RequestID string   `json:"request_id"`
	Tenant    string   `json:"tenant"` // as in PreprocessedRequest
	Attempt   int      `json:"attempt"`
	ModelSum  string   `json:"mdc_sum"`
	TokenIDs  []uint32 `json:"prompt_token_ids"` // without the last prompt token: decode computes it
	// Media are the images of the prompt, as in PreprocessedRequest.
	Media []MediaPart `json:"media,omitempty"`
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
	// EnqueuedAt is when the decode worker put the request on the queue.
	EnqueuedAt time.Time `json:"enqueued_at"`
}

// PrefillPhase is the progress of a remote prefill.
type PrefillPhase string

// The phases of a remote prefill.
const (
	PrefillStarted PrefillPhase = "started" // a prefill worker has started
	PrefillDone    PrefillPhase = "done"    // all KV is in place
	PrefillFailed  PrefillPhase = "failed"  // this attempt failed
	// PrefillRead is sent by the reader of held KV or of embeddings behind Ticket. It has
	// read them, or does not need them, and will not read again.
	PrefillRead PrefillPhase = "read"
)

// PrefillNotice is a NIXL notification about the progress of a remote prefill. A prefill
// worker sends it to the decode worker; after done and failed it writes no more. A decode
// worker that reads held KV sends one back, with PrefillRead.
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
	// ExposedNS is the time from the end of the computation until the last block was
	// written: transfer time not overlapped with computation.
	ExposedNS int64  `json:"exposed_ns"`
	Bytes     int64  `json:"bytes"`
	Transport string `json:"transport"` // by which they were moved
	// Encoded is about the images of the prompt; done.
	Encoded Encoded `json:"encoded,omitzero"`
}
