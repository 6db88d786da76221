package cluster

import (
	"strings"
	"time"
)

// Snapshot is the whole state of a cluster at one moment, as operators see it. Unknown
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
	// Actions lists the controller's actions, newest first.
	Actions []TopologyEvent `json:"actions"`
	// KVEventRate is events per second; Gaps counts events known to be missed;
	// Lag is the age of the newest event when it arrived.
	KVEventRate *float64       `json:"kv_events_per_s"`
	KVEventGaps uint64         `json:"kv_event_gaps"`
	KVEventLag  *time.Duration `json:"kv_event_lag_ns"`
	// Caches describes the KV caches of the workers; nil before they are known.
	Caches *KVCaches `json:"kv_caches"`
	// Planner is what the planner advises; nil in recordings of earlier releases.
	Planner *PlannerView `json:"planner"`
	// PlannerPools is the same of pools with names, in their order.
	PlannerPools []PlannerView `json:"planner_pools,omitempty"`
	// Activity is the activity of the worker that the operator inspects; null when none
	// is inspected.
	Activity *Activity `json:"activity"`
	Notices  []string  `json:"notices,omitempty"` // one line each, worst first
}

// Freshness says which stores answer, and since when the snapshot is out of date.
type Freshness struct {
	// Store is "files", "bucket" or "kubernetes" where files, NATS or the Kubernetes API hold
	// the shared state. The fields of etcd are then theirs.
	Store       string        `json:"store,omitempty"`
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
	// Pool is the worker's pool in the topology, empty for the main one. Engine and ServerURL are
	// set for engines that others wrote: the backend, and the address of a server that ran already.
	Pool      string `json:"pool,omitempty"`
	Engine    string `json:"engine,omitempty"`
	ServerURL string `json:"server_url,omitempty"`
	// Replaces names the worker that drains once this one serves. ReplacedBy names this
	// worker's successor.
	Replaces   string         `json:"replaces,omitempty"`
	ReplacedBy string         `json:"replaced_by,omitempty"`
	Lease      *time.Duration `json:"lease_left_ns"` // nil when unknown
	Uptime     *time.Duration `json:"uptime_ns"`
	TokS       *float64       `json:"tokens_per_s"`     // decode: generated, prefill: computed
	HitRate    *float64       `json:"prefix_hit_ratio"` // 0 to 1, over the last five minutes
	Busy       *float64       `json:"busy_ratio"`       // 0 to 1: fraction of time in which its engine computed
	// Images are the rates of an encode worker; nil for others.
	Images *ImageRates `json:"images,omitempty"`
	// HeardAt is when the last status arrived, by the observer's clock; zero if none has.
	HeardAt time.Time `json:"heard_at,omitzero"`
	// Stale is set when HeardAt is longer ago than [SilentAfter]. While no events arrive
	// at all, the limit is three heartbeats. In a list of workers that were asked, it is
	// set for those that did not answer.
	Stale bool `json:"stale,omitempty"`
}

// Place returns a short label for what the worker computes on: the device and, if others wrote
// its engine, that, as "gpu0 H200 vllm" or "vllm gpu-3:8001". n is its node, or nil.
func (w *Worker) Place(n *Node) string {
	on := []string{n.DeviceLabel(w.Device), w.Engine}
	if _, host, ok := strings.Cut(w.ServerURL, "://"); ok {
		on = []string{w.Engine, host}
	}
	return strings.TrimSpace(strings.Join(on, " "))
}

// ImageRates are what an encode worker does; nil where two samples, or images, are missing.
type ImageRates struct {
	EncodedS *float64 `json:"encoded_per_s"`   // images whose embeddings it computed
	HitRate  *float64 `json:"cache_hit_ratio"` // 0 to 1, of the images of the last five minutes
	MovedBS  *float64 `json:"moved_bytes_per_s"`
}

// Silent reports whether a worker that should be heard is not: what it does is not known
// until it speaks again or its lease ends.
func (w *Worker) Silent() bool {
	return w.Stale && (w.State.Serving() || w.State == StateDraining)
}

// QueueStats counts the requests that wait. History has one sample a second, newest last;
// a nil sample is a gap.
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
	// Messages lists the oldest messages of the work queue, at most MaxQueued.
	Messages []QueuedPrefill `json:"messages,omitempty"`
}

// MaxQueued is the maximum number of work queue messages in a snapshot.
const MaxQueued = 16

// QueuedPrefill is one message of the prefill queue. If the message cannot be decoded,
// only RequestID, EnqueuedAt and InWork are set.
type QueuedPrefill struct {
	RequestID    string    `json:"request_id"`
	Worker       string    `json:"worker,omitempty"` // the decode worker that waits for the KV
	PromptTokens int       `json:"prompt_tokens,omitempty"`
	Blocks       int       `json:"blocks,omitempty"` // KV blocks to write
	Bytes        int64     `json:"bytes,omitempty"`  // size of those blocks
	EnqueuedAt   time.Time `json:"enqueued_at"`
	Deadline     time.Time `json:"deadline,omitzero"`
	InWork       bool      `json:"in_work,omitempty"` // a prefill worker has taken it
}

// Latency holds percentiles over the last 60 seconds, in milliseconds.
type Latency struct {
	WindowS    int         `json:"window_s"`
	Requests   uint64      `json:"requests"`
	TTFT       Percentiles `json:"ttft_ms"`
	ITL        Percentiles `json:"itl_ms"`
	Queue      Percentiles `json:"queue_ms"`
	Transfers  Percentiles `json:"kv_transfer_ms"`
	Transfer   *float64    `json:"kv_transfer_ms_mean"` // since the workers' start
	TransferBS *float64    `json:"kv_transfer_bytes_per_s"`
}

// Percentiles of one duration in milliseconds; nil when nothing was observed.
type Percentiles struct {
	P50 *float64 `json:"p50"`
	P95 *float64 `json:"p95"`
	P99 *float64 `json:"p99"`
}

// PercentilesOf returns the 50th, 95th and 99th percentile of h.
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
