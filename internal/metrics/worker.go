package metrics

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// WorkerLabels are on every metric of a worker.
type WorkerLabels struct {
	Namespace string // of the cluster
	Component string // the role: prefill, decode
	Endpoint  string // generate, prefill
	Model     string // served name
	Worker    string // worker-7
}

func (l WorkerLabels) values() []string {
	// An operator chooses the model's name, and Prometheus requires UTF-8.
	model := strings.ToValidUTF8(l.Model, "\uFFFD")
	return []string{l.Namespace, l.Component, l.Endpoint, model, l.Worker}
}

func workerLabelNames() []string {
	return []string{LabelNamespace, LabelComponent, LabelEndpoint, LabelModel, LabelWorker}
}

// Worker holds the metrics of one worker in one role.
type Worker struct {
	Requests        Counter
	Inflight        Gauge
	RequestDuration Observer // seconds
	RequestBytes    Counter
	Cancellations   Counter

	ModelLoadTime Gauge // seconds
	DrainTime     Gauge // seconds of the last drain
	TotalBlocks   Gauge
	CacheUsage    Gauge // share of the blocks in use, 0 to 1 despite its name
	CacheHitRate  Gauge // share of prompt tokens found in the prefix cache, 0 to 1

	Preemptions     Counter
	Evictions       Counter // blocks
	PromptTokens    Counter // computed, not found in the cache
	GeneratedTokens Counter

	DraftTokens    Counter // proposed by speculation and verified
	AcceptedTokens Counter // those of them that became output
	StepWait       Counter // seconds in which steps waited for a shared device

	PrefillQueueDepth  Gauge
	PrefillQueueWait   Observer // seconds from enqueue to start
	PrefillRedelivered Counter
	PrefillDead        Counter
	LeaseLosses        Counter
	Quarantines        Counter // times that a writer of KV blocks could not be stopped

	registry *Registry
	labels   WorkerLabels

	errors, prefills, transferBytes *CounterVec
	blocks, sequences               *GaugeVec
	transferTime, remoteTime        *HistogramVec
	transferExposed                 *HistogramVec
	holds, rooms                    *CounterVec
	holdTime                        *HistogramVec
	firstLegs                       *CounterVec
	firstLegTime                    *HistogramVec
	images                          *CounterVec
	encodeTime, decodeTime          Observer
	embeddingsBytes                 *CounterVec
	embeddingsTime                  *HistogramVec
	handovers                       handoverMetrics
	phases                          map[string]phaseMetrics // by value of LabelPhase
}

// phaseMetrics covers the steps of one phase.
type phaseMetrics struct{ time, ratio, chunk Observer }

// NewWorker returns the metrics of one worker in r. The uptime counts from started.
func NewWorker(r *Registry, l WorkerLabels, started time.Time) *Worker {
	names, values := workerLabelNames(), l.values()
	with := func(extra ...string) []string { return append(workerLabelNames(), extra...) }
	counter := func(name, help string) Counter { return r.counter(name, help, names...).WithLabelValues(values...) }
	gauge := func(name, help string) Gauge { return r.gauge(name, help, names...).WithLabelValues(values...) }
	hist := func(name, help string, bounds []float64) Observer {
		return r.histogram(name, help, bounds, names...).WithLabelValues(values...)
	}
	r.gaugeFunc(ComponentUptime, "Time since the worker started, in seconds", names...).
		Set(func() float64 { return time.Since(started).Seconds() }, values...)
	return &Worker{
		registry: r, labels: l,

		Requests:        counter(ComponentRequests, "Total number of requests processed"),
		Inflight:        gauge(ComponentInflight, "Number of requests being processed"),
		RequestDuration: hist(ComponentRequestDuration, "Time spent on a request, in seconds", durationBuckets()),
		RequestBytes:    counter(ComponentRequestBytes, "Total number of bytes received in requests"),
		Cancellations:   counter(ComponentCancellations, "Total number of requests whose caller left"),

		ModelLoadTime: gauge(ComponentModelLoadTime, "Time to load the model, in seconds"),
		DrainTime:     gauge(ComponentDrainTime, "Duration of the last drain, in seconds"),
		TotalBlocks:   gauge(ComponentTotalBlocks, "Total number of KV blocks"),
		CacheUsage:    gauge(ComponentCacheUsage, "Share of KV blocks in use (0.0-1.0)"),
		CacheHitRate:  gauge(ComponentCacheHitRate, "Share of prompt tokens found in the prefix cache (0.0-1.0)"),

		Preemptions:     counter(ComponentPreemptions, "Total number of sequences that lost their KV blocks"),
		Evictions:       counter(ComponentEvictions, "Total number of cached KV blocks that were reused"),
		PromptTokens:    counter(ComponentPromptTokens, "Total number of prompt tokens computed"),
		GeneratedTokens: counter(ComponentGeneratedTokens, "Total number of tokens generated"),

		DraftTokens:    counter(ComponentDraftTokens, "Total number of tokens proposed by speculation and verified"),
		AcceptedTokens: counter(ComponentAcceptedTokens, "Total number of tokens proposed by speculation that were right"),
		StepWait:       counter(ComponentStepWait, "Total time that engine steps waited for a device shared with other workers, in seconds"),

		PrefillQueueDepth:  gauge(ComponentPrefillQueueDepth, "Number of requests in the prefill queue, as this worker saw it last"),
		PrefillQueueWait:   hist(ComponentPrefillQueueWait, "Time a request waited in the prefill queue, in seconds", waitBuckets()),
		PrefillRedelivered: counter(ComponentPrefillRedelivered, "Total number of prefill requests that were delivered again"),
		PrefillDead:        counter(ComponentPrefillDead, "Total number of prefill requests that were given up"),
		LeaseLosses:        counter(ComponentLeaseLosses, "Total number of lost leases"),
		Quarantines:        counter(ComponentQuarantines, "Total number of times that KV blocks were put in quarantine because their writer could not be stopped in time"),

		errors:          r.counter(ComponentErrors, "Total number of errors while processing requests", with(LabelErrorType)...),
		prefills:        r.counter(ComponentPrefills, "Total number of prefill decisions of a decode worker", with(LabelWhere, LabelWay, LabelReason)...),
		transferBytes:   r.counter(ComponentKVTransferBytes, "Total number of KV bytes moved", with(LabelDirection, LabelTransport)...),
		blocks:          r.gauge(ComponentKVBlocks, "Number of KV blocks by state", with(LabelState)...),
		sequences:       r.gauge(ComponentSequences, "Number of sequences by state", with(LabelState)...),
		transferTime:    r.histogram(ComponentKVTransferTime, "Time to move the KV blocks of one request, in seconds", transferBuckets(), with(LabelDirection, LabelTransport)...),
		transferExposed: r.histogram(ComponentKVTransferExposed, "Time from the end of a remote prefill's computation until all its KV is in place, in seconds", transferBuckets(), with(LabelWay)...),
		remoteTime:      r.histogram(ComponentRemoteTime, "Time that a decode worker waited for the KV of a remote prefill, in seconds", waitBuckets(), with(LabelWay)...),
		holds:           r.counter(ComponentHolds, "Total number of prompts whose KV was held for a reader, by how that ended", with(LabelOutcome)...),
		holdTime:        r.histogram(ComponentHoldTime, "Time that the KV of a prompt was held for a reader, in seconds", waitBuckets(), with(LabelOutcome)...),
		rooms:           r.counter(ComponentRooms, "Total number of bootstrap rooms that a prefill entered, by how that ended", with(LabelOutcome)...),
		firstLegs:       r.counter(ComponentFirstLegs, "Total number of prompts that a server was to compute for decode servers, by how that ended", with(LabelOutcome)...),
		firstLegTime:    r.histogram(ComponentFirstLegTime, "Time that a server took to compute a prompt for a decode server, in seconds", durationBuckets(), with(LabelOutcome)...),
		images:          r.counter(ComponentImages, "Total number of images whose embeddings an encode worker gave or a worker computed for itself, by whether it had computed them before", with(LabelOutcome)...),
		encodeTime:      hist(ComponentEncodeTime, "Time until the embeddings of an image that had not been computed before were there, in seconds", durationBuckets()),
		decodeTime:      hist(ComponentDecodeTime, "Time from the first to the last token of a request that a worker computed, in seconds", durationBuckets()),
		embeddingsBytes: r.counter(ComponentEmbeddingsBytes, "Total number of bytes of embeddings moved", with(LabelDirection, LabelTransport)...),
		embeddingsTime:  r.histogram(ComponentEmbeddingsTime, "Time to move the embeddings of one image, in seconds", transferBuckets(), with(LabelDirection, LabelTransport)...),
		handovers:       newHandoverMetrics(r, with),
		phases:          newPhases(r, l),
	}
}

func newPhases(r *Registry, l WorkerLabels) map[string]phaseMetrics {
	phases := make(map[string]phaseMetrics)
	for _, phase := range []string{PhasePrefill, PhaseDecode, PhaseMixed} {
		hist := func(name, help string, bounds []float64) Observer {
			return r.histogram(name, help, bounds, append(workerLabelNames(), LabelPhase)...).WithLabelValues(append(l.values(), phase)...)
		}
		phases[phase] = phaseMetrics{
			time:  hist(ComponentStepTime, "Time that an engine step computed, in seconds", stepBuckets()),
			ratio: hist(ComponentStepRatio, "Time that an engine step computed, as a multiple of what was predicted", ratioBuckets()),
			chunk: hist(ComponentChunkTokens, "Prompt tokens in an engine step that computes any", chunkTokenBuckets()),
		}
	}
	return phases
}

// Step records one step of the engine: its duration, the predicted duration (0 if there
// was none), its prompt tokens, and whether it also decoded.
func (w *Worker) Step(busy, predicted time.Duration, promptTokens int, decodes bool) {
	phase := PhaseDecode
	switch {
	case promptTokens > 0 && decodes:
		phase = PhaseMixed
	case promptTokens > 0:
		phase = PhasePrefill
	}
	m := w.phases[phase]
	m.time.Observe(busy.Seconds())
	if predicted > 0 {
		m.ratio.Observe(float64(busy) / float64(predicted))
	}
	if promptTokens > 0 {
		m.chunk.Observe(float64(promptTokens))
	}
}

func (w *Worker) with(extra ...string) []string { return append(w.labels.values(), extra...) }

// Error counts an error; kind is one of the WorkerError values.
func (w *Worker) Error(kind string) { w.errors.WithLabelValues(w.with(kind)...).Inc() }

// Where and how the KV of a prompt was computed, for [Worker.Prefill].
const (
	PrefillLocal    = "local"
	PrefillRemote   = "remote"
	PrefillFallback = "fallback" // remote was tried and failed
)

// Prefill counts how a decode worker got the KV of a prompt. way is the protocol's way of
// the remote prefill that was tried, empty for local. reason is a word from a fixed set
// such as short, queue full, remote prefill timed out.
func (w *Worker) Prefill(where, way, reason string) {
	w.prefills.WithLabelValues(w.with(where, way, reason)...).Inc()
}

// RemotePrefill records how long a decode worker waited for a remote prefill, from
// reserving blocks until all of them were filled in the given way.
func (w *Worker) RemotePrefill(way string, took time.Duration) {
	w.remoteTime.WithLabelValues(w.with(way)...).Observe(took.Seconds())
}

// Blocks sets the number of KV blocks in a state: free, active, cached, incoming,
// outgoing, quarantined.
func (w *Worker) Blocks(state string, n int) {
	w.blocks.WithLabelValues(w.with(state)...).Set(float64(n))
}

// Sequences sets the number of sequences in a state: running, waiting, remote.
func (w *Worker) Sequences(state string, n int) {
	w.sequences.WithLabelValues(w.with(state)...).Set(float64(n))
}

// Transferred records a transfer of KV blocks of one request.
func (w *Worker) Transferred(direction, transport string, bytes int64, took time.Duration) {
	w.transferBytes.WithLabelValues(w.with(direction, transport)...).Add(float64(max(bytes, 0)))
	w.transferTime.WithLabelValues(w.with(direction, transport)...).Observe(took.Seconds())
}

// TransferExposed records the part of one remote prefill's transfer that was not
// overlapped with its computation.
func (w *Worker) TransferExposed(way string, d time.Duration) {
	w.transferExposed.WithLabelValues(w.with(way)...).Observe(d.Seconds())
}

// The outcomes of holding the KV of a prompt for a reader, for [Worker.Hold].
const (
	HoldRead    = "read"
	HoldUnread  = "unread"  // the reader reported that it could not read
	HoldExpired = "expired" // the deadline passed
	HoldLeft    = "left"    // the frontend cancelled the request, or left after the first output
	HoldCut     = "cut"     // the worker ended
)

// Hold records the end of holding the KV of a prompt.
func (w *Worker) Hold(outcome string, held time.Duration) {
	w.holds.WithLabelValues(w.with(outcome)...).Inc()
	w.holdTime.WithLabelValues(w.with(outcome)...).Observe(held.Seconds())
}

// The outcomes of a prompt that a server computes for a decode server, for [Worker.FirstLeg].
const (
	LegComputed = "computed" // a decode server took over, or met it
	LegAnswered = "answered" // the server gave the whole answer
	LegStranded = "stranded" // no decode server took the KV in time
	LegFailed   = "failed"
	LegLeft     = "left" // the frontend left before
)

// FirstLeg records a prompt that the server of the worker was to compute for a decode server, and
// how long that took.
func (w *Worker) FirstLeg(outcome string, took time.Duration) {
	w.firstLegs.WithLabelValues(w.with(outcome)...).Inc()
	w.firstLegTime.WithLabelValues(w.with(outcome)...).Observe(took.Seconds())
}

// The outcomes of a prefill in a bootstrap room, for [Worker.Room].
const (
	RoomDone    = "done"    // the decode worker has all KV
	RoomUnmet   = "unmet"   // the prefill ended before a decode worker joined
	RoomFailed  = "failed"  // the computation or a write failed, or the decode worker left
	RoomRefused = "refused" // no prefill entered: the room was taken, or there were too many
)

// Room counts a bootstrap room that a prefill entered or tried to enter.
func (w *Worker) Room(outcome string) { w.rooms.WithLabelValues(w.with(outcome)...).Inc() }

// The outcomes of an image, for [Worker.Encoded].
const (
	EncodeComputed = "computed"
	EncodeCached   = "cached" // or computed for somebody else at that time
)

// EmbeddingsSent records that another worker has read the embeddings of one image.
func (w *Worker) EmbeddingsSent(transport string, bytes int64, took time.Duration) {
	w.embeddingsMoved(DirectionOut, transport, bytes, took)
}

// EmbeddingsRead records that this worker has read the embeddings of one image.
func (w *Worker) EmbeddingsRead(transport string, bytes int64, took time.Duration) {
	w.embeddingsMoved(DirectionIn, transport, bytes, took)
}

func (w *Worker) embeddingsMoved(direction, transport string, bytes int64, took time.Duration) {
	w.embeddingsBytes.WithLabelValues(w.with(direction, transport)...).Add(float64(max(bytes, 0)))
	w.embeddingsTime.WithLabelValues(w.with(direction, transport)...).Observe(took.Seconds())
}

// Encoded records an image whose embeddings an encode worker has, or another worker computed
// for itself, and how long that took.
func (w *Worker) Encoded(cached bool, took time.Duration) {
	if cached {
		w.images.WithLabelValues(w.with(EncodeCached)...).Inc()
		return
	}
	w.images.WithLabelValues(w.with(EncodeComputed)...).Inc()
	w.encodeTime.Observe(took.Seconds())
}

// Decoded records how long a request took from its first token at this worker to its last.
func (w *Worker) Decoded(took time.Duration) { w.decodeTime.Observe(took.Seconds()) }

// Close removes the worker's series. It is safe to call twice.
func (w *Worker) Close() {
	match := prometheus.Labels{}
	for i, name := range workerLabelNames() {
		match[name] = w.labels.values()[i]
	}
	w.registry.forget(match)
}
