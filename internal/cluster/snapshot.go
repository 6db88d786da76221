package cluster

import "time"

// Snapshot is everything an operator sees of a cluster at one moment. Unknown
// values are nil pointers or empty, never invented zeros.
type Snapshot struct {
	Time    time.Time `json:"time"`
	Cluster string    `json:"cluster"`
	// Fresh says how current the data is; see [Freshness].
	Fresh    Freshness  `json:"fresh"`
	Topology *Topology  `json:"topology,omitempty"`
	Leader   string     `json:"leader,omitempty"` // node name of the controller
	Nodes    []Node     `json:"nodes"`
	Workers  []Worker   `json:"workers"` // sorted by name, numbers by value
	Leases   []Lease    `json:"leases"`  // soonest to expire first
	Queue    QueueStats `json:"queue"`
	Latency  Latency    `json:"latency"`
	// Events and Decisions hold the newest first, a bounded number of each.
	Events    []KVEvent        `json:"kv_events"`
	Decisions []RouterDecision `json:"router_decisions"`
	// Actions are what the controller did, newest first.
	Actions []TopologyEvent `json:"actions"`
	// KVEventRate is events per second; Gaps counts events known to be missed;
	// Lag is the age of the newest event when it arrived.
	KVEventRate *float64       `json:"kv_events_per_s"`
	KVEventGaps uint64         `json:"kv_event_gaps"`
	KVEventLag  *time.Duration `json:"kv_event_lag_ns"`
	// Activity is that of the worker that somebody looks at, null when nobody does.
	Activity *Activity `json:"activity"`
	Notices  []string  `json:"notices,omitempty"` // one line each, worst first
}

// Freshness tells how far a snapshot can be trusted.
type Freshness struct {
	EtcdOK      bool          `json:"etcd_ok"`
	EtcdRTT     time.Duration `json:"etcd_rtt_ns"`
	EtcdErr     string        `json:"etcd_error,omitempty"`
	NATSOK      bool          `json:"nats_ok"`
	NATSRTT     time.Duration `json:"nats_rtt_ns"`
	NATSErr     string        `json:"nats_error,omitempty"`
	StaleSince  time.Time     `json:"stale_since,omitzero"` // zero while live
	NextAttempt time.Time     `json:"next_attempt,omitzero"`
}

// Live reports whether the snapshot is current.
func (f Freshness) Live() bool { return f.StaleSince.IsZero() }

// Worker is one worker as operators see it: assignment, last status, lease and
// the rates between the last two samples.
type Worker struct {
	WorkerStatus
	Desire Desire `json:"desire,omitempty"`
	// Replaces names the worker that leaves once this one serves, ReplacedBy the one that
	// follows this one.
	Replaces   string         `json:"replaces,omitempty"`
	ReplacedBy string         `json:"replaced_by,omitempty"`
	Lease      *time.Duration `json:"lease_left_ns"` // nil when unknown
	Uptime     *time.Duration `json:"uptime_ns"`
	TokS       *float64       `json:"tokens_per_s"`     // decode: generated, prefill: computed
	HitRate    *float64       `json:"prefix_hit_ratio"` // 0 to 1, over the last five minutes
	Busy       *float64       `json:"busy_ratio"`       // 0 to 1: share of time in which its engine computed
	// HeardAt is when the last status came, by the observer's clock; zero when none has.
	HeardAt time.Time `json:"heard_at,omitzero"`
	// Stale is set when that is longer ago than [SilentAfter], or, while
	// no events come at all, than three heartbeats.
	Stale bool `json:"stale,omitempty"`
}

// QueueStats describes the requests that wait, with one sample a second, newest
// last; a nil sample is a gap.
type QueueStats struct {
	Prefill     *int       `json:"prefill_queue"` // messages in the JetStream work queue
	PrefillBusy *int       `json:"prefill_in_work"`
	Dead        *int       `json:"dead_lettered"` // prefills given up, kept with a reason
	Waiting     *int       `json:"waiting"`       // sequences waiting in engines
	RemoteWait  *int       `json:"transfer_wait"`
	InFlight    *int       `json:"in_flight"`
	History     []*float64 `json:"history"` // total depth: queue + waiting
	AdmittedS   *float64   `json:"admitted_per_s"`
	Rejected    uint64     `json:"rejected_total"`
	Preempted   uint64     `json:"preempted_total"`
	Cancelled   uint64     `json:"cancelled_total"`
	Fallbacks   uint64     `json:"fallback_total"`
	// Messages are the oldest of the work queue, at most MaxQueued.
	Messages []QueuedPrefill `json:"messages,omitempty"`
}

// MaxQueued is how many messages of the work queue a snapshot holds.
const MaxQueued = 16

// QueuedPrefill is one message of the prefill queue. Of a message that cannot be read
// only the request, the time and whether it is in work are known.
type QueuedPrefill struct {
	RequestID    string    `json:"request_id"`
	Worker       string    `json:"worker,omitempty"` // decode worker that waits for it
	PromptTokens int       `json:"prompt_tokens,omitempty"`
	Blocks       int       `json:"blocks,omitempty"` // that are to be written
	Bytes        int64     `json:"bytes,omitempty"`  // of those blocks
	EnqueuedAt   time.Time `json:"enqueued_at"`
	Deadline     time.Time `json:"deadline,omitzero"`
	InWork       bool      `json:"in_work,omitempty"` // a prefill worker has it
}

// Latency holds percentiles over the last 60 seconds, in milliseconds.
type Latency struct {
	WindowS    int         `json:"window_s"`
	Requests   uint64      `json:"requests"`
	TTFT       Percentiles `json:"ttft_ms"`
	ITL        Percentiles `json:"itl_ms"`
	Queue      Percentiles `json:"queue_ms"`
	Transfer   *float64    `json:"kv_transfer_ms_mean"`
	TransferBS *float64    `json:"kv_transfer_bytes_per_s"`
}

// Percentiles of one duration in milliseconds; nil when nothing was observed.
type Percentiles struct {
	P50 *float64 `json:"p50"`
	P95 *float64 `json:"p95"`
	P99 *float64 `json:"p99"`
}

// PercentilesOf reads the three percentiles of h.
func PercentilesOf(h Histogram) Percentiles {
	at := func(q float64) *float64 {
		d, ok := h.Quantile(q)
		if !ok {
			return nil
		}
		ms := float64(d) / float64(time.Millisecond)
		return &ms
	}
	return Percentiles{P50: at(0.50), P95: at(0.95), P99: at(0.99)}
}
