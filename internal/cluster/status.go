package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// How often workers report, and when observers consider them silent.
const (
	// StatusInterval is the time between two status events with fresh counters.
	StatusInterval = time.Second
	// HeartbeatInterval is the longest time between two writes of the status key. Each one
	// stays in the history of etcd until that is compacted.
	HeartbeatInterval = time.Minute
	// SilentAfter is the time without a status after which observers call a worker
	// silent. It is shorter than a lease, and longer than a busy machine delays an event.
	SilentAfter = 4 * StatusInterval
)

// WorkerStatus is the observed state of one worker. The worker publishes it in
// etcd under its own lease when its state changes, and every second on the event
// plane with fresh counters.
type WorkerStatus struct {
	Name    string `json:"name"`
	Role    Role   `json:"role"`
	Model   string `json:"model"`
	Weights string `json:"weights,omitempty"` // their type, see ModelCard; empty until they are loaded
	// TensorParallel is the number of ranks that share the worker's heads; 0 until its
	// model is loaded.
	TensorParallel int    `json:"tensor_parallel,omitempty"`
	Node           string `json:"node"`
	Device         string `json:"device"`
	State          State  `json:"state"`
	Reason         string `json:"reason,omitempty"` // why degraded, failed, waiting
	// Sleep is the level at which the worker has put its server to sleep, 0 if it has not: a
	// sleeping worker without a level has found its server asleep.
	Sleep      int        `json:"sleep,omitempty"`
	InstanceID InstanceID `json:"instance_id,omitempty"`
	LeaseTTLMS int64      `json:"lease_ttl_ms,omitempty"`
	StartedAt  time.Time  `json:"started_at,omitzero"`
	// UpdatedAt is when the worker wrote this, by its own clock.
	UpdatedAt time.Time `json:"updated_at"`
	// Unhealthy says why the worker may not answer requests, as its canary found; empty while
	// it does, and without a canary.
	Unhealthy string `json:"unhealthy,omitempty"`
	// Restarts counts starts after failures; RetryAt is when the next one is due.
	Restarts int       `json:"restarts,omitempty"`
	RetryAt  time.Time `json:"retry_at,omitzero"`
	// NoMemory is set when the worker failed because its device lacks memory for it.
	NoMemory bool `json:"no_memory,omitempty"`
	// FitsAlone is set beside NoMemory when this worker would fit once the worker that it
	// replaces is gone.
	FitsAlone bool `json:"fits_alone,omitempty"`
	// Declined is the newest change of its assignment that the worker rejected as
	// impossible. It checked before it stopped serving, so that it serves unchanged.
	Declined Declined `json:"declined,omitzero"`
	// MemoryBytes is the size of the worker's KV pool; weights are shared and not counted.
	MemoryBytes int64 `json:"memory_bytes,omitempty"`
	// BlockBytes is the size of one KV block.
	BlockBytes int64 `json:"block_bytes,omitempty"`
	// Generation is the generation of the assignment that this run serves.
	Generation int64 `json:"generation"`
	// Progress is the fraction of loading that is done, 0 to 1. Drain is the progress of
	// a drain; nil without one.
	Progress float64      `json:"progress,omitempty"`
	Drain    *DrainStatus `json:"drain,omitempty"`
	Stats    WorkerStats  `json:"stats"`
	// KVEpoch and KVNext are the worker's KVPosition.
	KVEpoch uint64 `json:"kv_epoch,omitempty"`
	KVNext  uint64 `json:"kv_next,omitempty"`
	// ServerStatus is set while the worker uses a server that others wrote. It is never changed once
	// it is set.
	ServerStatus *ServerStatus `json:"server_status,omitempty"`
}

// PoolBytes estimates the size in bytes of a KV pool with the blocks that want asks for.
// It scales the block size of this worker, whose engine is have. It returns 0 when that
// does not allow an estimate, for example with another KV type.
func (st WorkerStatus) PoolBytes(have, want EngineSpec) int64 {
	if want.KVBlocks <= 0 || st.BlockBytes <= 0 || st.Stats.BlockSize <= 0 || have.KVDType != want.KVDType {
		return 0
	}
	size := st.Stats.BlockSize
	if have.BlockSize != want.BlockSize {
		size = cmp.Or(want.BlockSize, DefaultBlockSize)
	}
	bytes := float64(want.KVBlocks) * float64(size) * float64(st.BlockBytes) / float64(st.Stats.BlockSize)
	return int64(min(bytes, 1<<62))
}

// Declined names a generation of an assignment that a worker rejected, with the reason.
type Declined struct {
	Generation int64  `json:"generation"`
	Why        string `json:"why"`
}

// WorkerStats holds the load figures of one worker. Gauges show the present; the _total
// fields count since the worker started and only grow.
type WorkerStats struct {
	Running int `json:"running"` // sequences in the batch; encode: images whose embeddings are computed
	Waiting int `json:"waiting"` // sequences that wait for admission; encode: images that wait for their turn
	// Prefilling counts sequences in the batch whose prompt is not computed, PrefillTokens
	// what is left of their prompts.
	Prefilling    int `json:"prefilling"`
	PrefillTokens int `json:"prefill_tokens"`

	RemoteWait  int `json:"remote_wait"` // decode: sequences whose KV comes from a prefill worker
	EncodeWait  int `json:"encode_wait"` // sequences that wait for the embeddings of images
	Moving      int `json:"moving"`      // sequences that are paused between two decode workers
	MaxSeqs     int `json:"max_seqs"`    //
	BlockSize   int `json:"block_size"`  // tokens
	KVTotal     int `json:"kv_blocks"`   // blocks in the pool
	KVActive    int `json:"kv_active"`   // referenced by sequences
	KVCached    int `json:"kv_cached"`   // unreferenced, findable by hash
	KVIncoming  int `json:"kv_incoming"` // reserved for a remote write
	KVOutgoing  int `json:"kv_outgoing"` // held for a remote transfer
	Quarantined int `json:"kv_quarantined"`
	// MaxBatchTokens bounds the tokens of one step; 0 if the worker does not tell.
	MaxBatchTokens int `json:"max_num_batched_tokens,omitempty"`
	// PrefillRate is the speed of prompts, in tokens per second, as the steps so far
	// predict it for a chunk of the largest size; 0 before the first step.
	PrefillRate float64 `json:"prefill_tokens_per_s,omitempty"`

	RequestsTotal      uint64 `json:"requests_total"`
	FinishedTotal      uint64 `json:"finished_total"`
	CancelledTotal     uint64 `json:"cancelled_total"`
	MovedTotal         uint64 `json:"moved_total"` // to other workers, by a drain
	RejectedTotal      uint64 `json:"rejected_total"`
	PreemptedTotal     uint64 `json:"preempted_total"`
	EvictedTotal       uint64 `json:"evicted_total"` // blocks
	PromptTokensTotal  uint64 `json:"prompt_tokens_total"`
	CachedTokensTotal  uint64 `json:"cached_tokens_total"` // prompt tokens found in the prefix cache
	ComputedTotal      uint64 `json:"computed_tokens_total"`
	GeneratedTotal     uint64 `json:"generated_tokens_total"`
	RemotePrefillTotal uint64 `json:"remote_prefill_total"` // prefilled elsewhere (decode) or for others (prefill)
	LocalPrefillTotal  uint64 `json:"local_prefill_total"`
	FallbackTotal      uint64 `json:"fallback_total"` // remote prefills that were computed locally in the end
	TransferBytesTotal uint64 `json:"transfer_bytes_total"`
	TransferNanosTotal uint64 `json:"transfer_ns_total"` // summed durations of transfers
	TransfersTotal     uint64 `json:"transfers_total"`
	// TransferTimes counts the durations of transfers since the start; nil before the first.
	// It is never changed once it is set.
	TransferTimes *Histogram `json:"transfer_times,omitempty"`
	StepsTotal    uint64     `json:"steps_total"`

	StepNanosTotal     uint64 `json:"step_ns_total"`      // computing
	StepWaitNanosTotal uint64 `json:"step_wait_ns_total"` // waiting for a shared device
	StepGapNanosTotal  uint64 `json:"step_gap_ns_total"`  // between steps that follow each other
	// StepMissNanosTotal adds up the errors of predicted step durations.
	StepMissNanosTotal uint64 `json:"step_miss_ns_total"`
	// MixedStepsTotal counts the steps that both decode and prefill. MixedTokensTotal
	// counts the prompt tokens in them: the quotient is the mean chunk under the ITL
	// target.
	MixedStepsTotal  uint64 `json:"mixed_steps_total"`
	MixedTokensTotal uint64 `json:"mixed_tokens_total"`
	// What follows adds up the work of all steps, the features that their durations depend on:
	// entries of one token and the positions that these attend to, tokens in chunks of prompts and
	// the positions that those attend to.
	StepDecodesTotal       uint64 `json:"step_decodes_total"`
	StepDecodeContextTotal uint64 `json:"step_decode_context_total"`
	StepTokensTotal        uint64 `json:"step_tokens_total"`
	StepChunkContextTotal  uint64 `json:"step_chunk_context_total"`
	// EncodedTotal counts the images whose embeddings this worker computed, and
	// ImagesCachedTotal those whose embeddings it had, or computed at that time for somebody
	// else. Of an encode worker, RequestsTotal counts the images that it was asked for,
	// FinishedTotal those whose embeddings were read, CancelledTotal those that nobody came to
	// read, and the transfers are of embeddings.
	EncodedTotal      uint64 `json:"images_encoded_total,omitempty"`
	ImagesCachedTotal uint64 `json:"images_cached_total,omitempty"`
	// Embeddings counts the images whose embeddings are in the worker's cache,
	// EmbeddingsBytes their size, and EmbeddingsLimit what the cache holds at most.
	Embeddings      int   `json:"embeddings_cached,omitempty"`
	EmbeddingsBytes int64 `json:"embeddings_cached_bytes,omitempty"`
	EmbeddingsLimit int64 `json:"embeddings_cache_limit_bytes,omitempty"`
	// DraftTokensTotal counts the tokens that speculation proposed and verified.
	// AcceptedTokensTotal counts those that became output.
	DraftTokensTotal    uint64 `json:"draft_tokens_total"`
	AcceptedTokensTotal uint64 `json:"accepted_tokens_total"`
}

// KVUsed returns the number of blocks that are neither free nor cached.
func (s WorkerStats) KVUsed() int {
	return s.KVActive + s.KVIncoming + s.KVOutgoing + s.Quarantined
}

// DrainStep names one stage of a drain, in order.
type DrainStep string

// The steps of a drain.
const (
	DrainDiscovery DrainStep = "leave-discovery"
	DrainAdmission DrainStep = "stop-admission"
	DrainIncoming  DrainStep = "incoming-kv"
	DrainSequences DrainStep = "finish-sequences"
	DrainOutgoing  DrainStep = "outgoing-kv"
	DrainLease     DrainStep = "revoke-lease"
)

// DrainSteps lists the steps in the order in which they happen.
var DrainSteps = []DrainStep{DrainDiscovery, DrainAdmission, DrainIncoming, DrainSequences, DrainOutgoing, DrainLease}

// For names the step as it is shown of a worker of the role: an encode worker has images and
// their embeddings in the place of sequences and KV.
func (s DrainStep) For(r Role) string {
	if r == RoleEncode {
		switch s {
		case DrainSequences:
			return "finish-images"
		case DrainOutgoing:
			return "outgoing-embeddings"
		}
	}
	return string(s)
}

// DrainStepsOf lists the steps that mean something to a worker of the role.
func DrainStepsOf(r Role) []DrainStep {
	if r.HoldsKV() {
		return DrainSteps
	}
	return slices.DeleteFunc(slices.Clone(DrainSteps), func(s DrainStep) bool { return s == DrainIncoming })
}

// DrainStatus is the progress of a drain.
type DrainStatus struct {
	Step      DrainStep `json:"step"`
	StartedAt time.Time `json:"started_at"`
	Deadline  time.Time `json:"deadline,omitzero"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	// Routers counts the frontends that the worker has asked, since it left discovery, to
	// stop choosing it. Acknowledged counts those that confirmed. Unacknowledged names
	// the nodes of the others, at most ten.
	Routers        int      `json:"routers,omitempty"`
	Acknowledged   int      `json:"routers_acknowledged,omitempty"`
	Unacknowledged []string `json:"routers_unacknowledged,omitempty"`
	// Sequences counts the sequences that ran when the drain began, Left those that still
	// run. Of an encode worker, these and what follows are images.
	Sequences int `json:"sequences"`
	Left      int `json:"left"`
	Incoming  int `json:"incoming"`
	Outgoing  int `json:"outgoing"`
	Finished  int `json:"finished"`
	Moved     int `json:"moved"`
	Cancelled int `json:"cancelled"`
	// CutOff counts the sequences that still ran when force ended the drain. Their
	// frontends compute them again at other workers, if there are any.
	CutOff int `json:"cut_off,omitempty"`
	// Open lists the sequences that still run, at most ten.
	Open []OpenSequence `json:"open,omitempty"`
	// Overdue is set when the deadline passed with work left.
	Overdue bool `json:"overdue,omitempty"`
	// Safe is set when nothing is in flight and the lease is revoked.
	Safe bool `json:"safe,omitempty"`
}

// Ends says what became of the sequences of the drain.
func (d *DrainStatus) Ends() string {
	text := fmt.Sprintf("%d finished, %d moved, %d cancelled", d.Finished, d.Moved, d.Cancelled)
	if d.CutOff > 0 {
		text += fmt.Sprintf(", %d cut off", d.CutOff)
	}
	return text
}

// OpenSequence is a sequence that still runs during a drain.
type OpenSequence struct {
	RequestID string `json:"request_id"`
	OutTokens int    `json:"out_tokens"`
	AgeMS     int64  `json:"age_ms"`
	// Why says why the drain has not moved the sequence to another worker.
	Why string `json:"why,omitempty"`
}

// Lease is one etcd lease as observers see it.
type Lease struct {
	ID      InstanceID    `json:"id"`
	Owner   string        `json:"owner"` // worker or node name
	TTL     time.Duration `json:"ttl_ns"`
	Left    time.Duration `json:"left_ns"`
	Renewed time.Duration `json:"renewed_ago_ns"` // TTL - Left
	// Endpoints lists the registrations under the lease, as component/endpoint. They end
	// with it.
	Endpoints []string `json:"endpoints,omitempty"`
	// Program describes the owner if it is neither a worker nor a node.
	Program *Program `json:"program,omitempty"`
}
