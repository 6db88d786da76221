package cluster

import (
	"cmp"
	"time"
)

// How often a worker tells its status.
const (
	// StatusInterval is between two events with fresh counters.
	StatusInterval = time.Second
	// HeartbeatInterval is the longest time between two writes of the status key.
	HeartbeatInterval = 5 * time.Second
	// SilentAfter is when an observer says that a worker is silent: sooner than its lease
	// ends, later than a busy machine delays an event.
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
	// TensorParallel is how many ranks share the worker's heads; 0 until its model is loaded.
	TensorParallel int        `json:"tensor_parallel,omitempty"`
	Node           string     `json:"node"`
	Device         string     `json:"device"`
	State          State      `json:"state"`
	Reason         string     `json:"reason,omitempty"` // why degraded, failed, waiting
	InstanceID     InstanceID `json:"instance_id,omitempty"`
	LeaseTTLMS     int64      `json:"lease_ttl_ms,omitempty"`
	StartedAt      time.Time  `json:"started_at,omitzero"`
	// UpdatedAt is when the worker wrote this, by its own clock.
	UpdatedAt time.Time `json:"updated_at"`
	// Restarts counts starts after failures; RetryAt is when the next one is due.
	Restarts int       `json:"restarts,omitempty"`
	RetryAt  time.Time `json:"retry_at,omitzero"`
	// NoMemory is set when the worker failed because its device has no room for it.
	NoMemory bool `json:"no_memory,omitempty"`
	// FitsAlone is set beside NoMemory when there would be room in the place of the worker
	// that this one is to follow.
	FitsAlone bool `json:"fits_alone,omitempty"`
	// Declined is the newest change of its assignment that the worker found impossible
	// before it stopped serving for it: it goes on as it was.
	Declined Declined `json:"declined,omitzero"`
	// MemoryBytes is the size of the worker's KV pool; weights are shared and not counted.
	MemoryBytes int64 `json:"memory_bytes,omitempty"`
	// BlockBytes is the size of one KV block.
	BlockBytes int64 `json:"block_bytes,omitempty"`
	// Generation is that of the assignment this run serves.
	Generation int64 `json:"generation"`
	// Progress of loading, 0 to 1; and of the drain.
	Progress float64      `json:"progress,omitempty"`
	Drain    *DrainStatus `json:"drain,omitempty"`
	Stats    WorkerStats  `json:"stats"`
}

// PoolBytes is about how much memory the KV pool of a worker takes that has as many blocks
// as want asks for and else the form of this worker, which has the engine have; 0 when that
// cannot be told.
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

// Declined is a generation of an assignment that a worker does not follow, and why.
type Declined struct {
	Generation int64  `json:"generation"`
	Why        string `json:"why"`
}

// WorkerStats are the load figures of one worker. Gauges say how things are now;
// the _total fields count since the worker started and only grow.
type WorkerStats struct {
	Running     int `json:"running"`     // sequences in the batch
	Waiting     int `json:"waiting"`     // sequences that wait for admission
	RemoteWait  int `json:"remote_wait"` // decode: sequences whose KV comes from a prefill worker
	Moving      int `json:"moving"`      // sequences that stand still between two decode workers
	MaxSeqs     int `json:"max_seqs"`    //
	BlockSize   int `json:"block_size"`  // tokens
	KVTotal     int `json:"kv_blocks"`   // blocks in the pool
	KVActive    int `json:"kv_active"`   // referenced by sequences
	KVCached    int `json:"kv_cached"`   // unreferenced, findable by hash
	KVIncoming  int `json:"kv_incoming"` // reserved for a remote write
	KVOutgoing  int `json:"kv_outgoing"` // held for a remote transfer
	Quarantined int `json:"kv_quarantined"`

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
	FallbackTotal      uint64 `json:"fallback_total"` // remote prefills that ended local
	TransferBytesTotal uint64 `json:"transfer_bytes_total"`
	TransferNanosTotal uint64 `json:"transfer_ns_total"` // summed durations of transfers
	TransfersTotal     uint64 `json:"transfers_total"`
	StepsTotal         uint64 `json:"steps_total"`

	StepNanosTotal     uint64 `json:"step_ns_total"`      // computing
	StepWaitNanosTotal uint64 `json:"step_wait_ns_total"` // waiting for a device that is shared
	// StepMissNanosTotal sums up by how much predictions of steps were wrong.
	StepMissNanosTotal uint64 `json:"step_miss_ns_total"`
	// MixedStepsTotal counts the steps that decode and prefill, MixedTokensTotal the
	// prompt tokens in them: their quotient is the mean chunk under the ITL target.
	MixedStepsTotal  uint64 `json:"mixed_steps_total"`
	MixedTokensTotal uint64 `json:"mixed_tokens_total"`
	// DraftTokensTotal counts the tokens that speculation proposed and verified,
	// AcceptedTokensTotal those of them that turned out to be the output.
	DraftTokensTotal    uint64 `json:"draft_tokens_total"`
	AcceptedTokensTotal uint64 `json:"accepted_tokens_total"`
}

// KVUsed is the number of blocks that are neither free nor cached.
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

// DrainStatus is how far a drain has come.
type DrainStatus struct {
	Step      DrainStep `json:"step"`
	StartedAt time.Time `json:"started_at"`
	Deadline  time.Time `json:"deadline,omitzero"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	// Routers is how many frontends the worker has asked since it left discovery, and
	// Acknowledged how many of them said that they choose it no more. Unacknowledged are
	// the nodes of the others, at most ten.
	Routers        int      `json:"routers,omitempty"`
	Acknowledged   int      `json:"routers_acknowledged,omitempty"`
	Unacknowledged []string `json:"routers_unacknowledged,omitempty"`
	// Sequences is how many ran when the drain began; Left how many still run.
	Sequences int `json:"sequences"`
	Left      int `json:"left"`
	Incoming  int `json:"incoming"`
	Outgoing  int `json:"outgoing"`
	Finished  int `json:"finished"`
	Moved     int `json:"moved"`
	Cancelled int `json:"cancelled"`
	// Open lists the sequences that still run, at most ten.
	Open []OpenSequence `json:"open,omitempty"`
	// Overdue is set when the deadline passed with work left.
	Overdue bool `json:"overdue,omitempty"`
	// Safe is set when nothing is in flight and the lease is revoked.
	Safe bool `json:"safe,omitempty"`
}

// OpenSequence is a running sequence as a drain shows it.
type OpenSequence struct {
	RequestID string `json:"request_id"`
	OutTokens int    `json:"out_tokens"`
	AgeMS     int64  `json:"age_ms"`
	// Why says why a drain has not moved it to another worker.
	Why string `json:"why,omitempty"`
}

// Lease is one etcd lease as observers see it.
type Lease struct {
	ID      InstanceID    `json:"id"`
	Owner   string        `json:"owner"` // worker or node name
	TTL     time.Duration `json:"ttl_ns"`
	Left    time.Duration `json:"left_ns"`
	Renewed time.Duration `json:"renewed_ago_ns"` // TTL - Left
	// Endpoints are registered under it, as component/endpoint, and end with it.
	Endpoints []string `json:"endpoints,omitempty"`
}
