package metrics

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Frontend holds the metrics of an HTTP frontend.
type Frontend struct {
	// Disconnected counts clients that left before their answer was complete. It
	// is a gauge because Dynamo's is.
	Disconnected Gauge

	requests *CounterVec
	cancels  *CounterVec
	rejects  *CounterVec
	refused  *CounterVec
	migrated *CounterVec
	started  *CounterVec
	inflight *GaugeVec
	active   *GaugeVec
	queued   *GaugeVec
	duration *HistogramVec
	ttft     *HistogramVec
	itl      *HistogramVec
	isl      *HistogramVec
	osl      *HistogramVec
	outToks  *CounterVec
	cached   *HistogramVec
	tokenize *HistogramVec
	stage    *HistogramVec
	inStage  *GaugeVec
	limits   [6]*GaugeVec

	models sync.Map // label value -> *frontendModel
}

// frontendModel holds the series of one model. They are looked up once, because a request
// uses several of them for every token.
type frontendModel struct {
	inflight, active, queued           Gauge
	started, outToks                   Counter
	duration, ttft, itl, isl, osl, hit Observer
}

// NewFrontend returns the frontend's metrics in r. Bundles of the same registry
// share their series.
func NewFrontend(r *Registry) *Frontend {
	gauge := func(name, help string) *GaugeVec { return r.gauge(name, help, LabelModel) }
	hist := func(name, help string, bounds []float64) *HistogramVec {
		return r.histogram(name, help, bounds, LabelModel)
	}
	return &Frontend{
		Disconnected: r.gauge(FrontendDisconnectedClients, "Number of disconnected clients").WithLabelValues(),
		requests:     r.counter(FrontendRequests, "Total number of LLM requests processed", LabelModel, LabelHTTPEndpoint, LabelRequestType, LabelStatus, LabelErrorType),
		cancels:      r.counter(FrontendModelCancellations, "Total number of request cancellations", LabelModel, LabelHTTPEndpoint, LabelRequestType),
		rejects:      r.counter(FrontendModelRejections, "Total number of requests rejected due to resource exhaustion", LabelModel, LabelHTTPEndpoint),
		refused:      r.counter(FrontendRefusals, "Total number of requests for which there was no room, by reason", LabelModel, LabelReason),
		migrated:     r.counter(FrontendModelMigrations, "Total number of request migrations due to worker unavailability", LabelModel, LabelMigrationType),
		started:      r.counter(FrontendRequestsStarted, "Total number of LLM requests started", LabelModel),
		inflight:     gauge(FrontendInflight, "Number of inflight requests"),
		active:       gauge(FrontendActive, "Number of requests from arrival to the end of the response"),
		queued:       gauge(FrontendQueued, "Number of requests that wait for their first token"),
		duration:     hist(FrontendRequestDuration, "Duration of LLM requests", durationBuckets()),
		ttft:         hist(FrontendTTFT, "Time to first token in seconds", ttftBuckets()),
		itl:          hist(FrontendITL, "Inter-token latency in seconds", itlBuckets()),
		isl:          hist(FrontendISL, "Input sequence length in tokens", inputTokenBuckets()),
		osl:          hist(FrontendOSL, "Output sequence length in tokens", outputTokenBuckets()),
		outToks:      r.counter(FrontendOutputTokens, "Total number of output tokens generated", LabelModel),
		cached:       hist(FrontendCachedTokens, "Number of cached tokens (prefix cache hits) per request", inputTokenBuckets()),
		tokenize:     r.histogram(FrontendTokenizerLatency, "Tokenizer latency in milliseconds", tokenizerMSBuckets(), LabelOperation),
		stage:        r.histogram(FrontendStageDuration, "Time that requests spend in a stage of the frontend, in seconds", requestPlaneBuckets(), LabelStage),
		inStage:      r.gauge(FrontendStageRequests, "Number of requests in a stage of the frontend", LabelStage),
		limits: [6]*GaugeVec{
			gauge(FrontendModelKVBlocks, "Total KV blocks of a worker serving the model"),
			gauge(FrontendModelMaxSeqs, "Maximum number of sequences of a worker serving the model"),
			gauge(FrontendModelMaxBatch, "Maximum number of batched tokens of a worker serving the model"),
			gauge(FrontendModelContext, "Maximum context length in tokens of a worker serving the model"),
			gauge(FrontendModelBlockSize, "KV block size in tokens of a worker serving the model"),
			gauge(FrontendModelMigrationLimit, "Maximum number of request migrations allowed for the model"),
		},
	}
}

// Begin counts a request as started. model must come from [ModelLabel]. The caller must
// call End on the result in every case.
func (f *Frontend) Begin(model, endpoint string, stream bool) *Request {
	r := &Request{f: f, m: f.model(model), model: model, endpoint: endpoint, kind: RequestUnary}
	if stream {
		r.kind = RequestStream
	}
	r.m.started.Inc()
	r.m.inflight.Inc()
	r.m.active.Inc()
	r.m.queued.Inc()
	return r
}

func (f *Frontend) model(label string) *frontendModel {
	if m, ok := f.models.Load(label); ok {
		return m.(*frontendModel)
	}
	m, _ := f.models.LoadOrStore(label, &frontendModel{
		inflight: f.inflight.WithLabelValues(label), active: f.active.WithLabelValues(label), queued: f.queued.WithLabelValues(label),
		started: f.started.WithLabelValues(label), outToks: f.outToks.WithLabelValues(label),
		duration: f.duration.WithLabelValues(label), ttft: f.ttft.WithLabelValues(label), itl: f.itl.WithLabelValues(label),
		isl: f.isl.WithLabelValues(label), osl: f.osl.WithLabelValues(label), hit: f.cached.WithLabelValues(label),
	})
	return m.(*frontendModel)
}

// Tokenizer records how long an operation ([OperationTokenize] or
// [OperationDetokenize]) took.
func (f *Frontend) Tokenizer(operation string, d time.Duration) {
	f.tokenize.WithLabelValues(operation).Observe(float64(d) / float64(time.Millisecond))
}

// EnterStage counts a request in a stage ([StagePreprocess], [StageQueue],
// [StageRoute], [StageDispatch]) until the returned function is called with the time it took.
func (f *Frontend) EnterStage(stage string) (leave func(time.Duration)) {
	in := f.inStage.WithLabelValues(stage)
	in.Inc()
	return func(d time.Duration) {
		in.Dec()
		f.stage.WithLabelValues(stage).Observe(d.Seconds())
	}
}

// ModelLimits holds the limits from the model card of a served model.
type ModelLimits struct {
	KVBlocks, MaxSeqs, MaxBatchTokens, ContextLength, BlockSize, MigrationLimit int
}

// SetModel sets the limits of a served model.
func (f *Frontend) SetModel(model string, l ModelLimits) {
	for i, v := range []int{l.KVBlocks, l.MaxSeqs, l.MaxBatchTokens, l.ContextLength, l.BlockSize, l.MigrationLimit} {
		f.limits[i].WithLabelValues(model).Set(float64(v))
	}
}

// ForgetModel removes the limits of a model that is no longer served. Its counters stay.
func (f *Frontend) ForgetModel(model string) {
	for _, g := range f.limits {
		g.DeletePartialMatch(prometheus.Labels{LabelModel: model})
	}
}

// Request counts one request. Its methods are for the goroutine that serves the
// request; End may also be called from another one.
type Request struct {
	f                     *Frontend
	m                     *frontendModel
	model, endpoint, kind string

	answered atomic.Bool // the first token came, or the request ended without one
	ended    atomic.Bool
}

// Prompt records the length of the prompt and how many of its tokens were in a
// prefix cache.
func (r *Request) Prompt(tokens, cached int) {
	r.m.isl.Observe(float64(tokens))
	r.m.hit.Observe(float64(cached))
}

// FirstToken records the time to first token; only the first call counts.
func (r *Request) FirstToken(sinceArrival time.Duration) {
	if !r.answered.Swap(true) {
		r.m.queued.Dec()
		r.m.ttft.Observe(sinceArrival.Seconds())
	}
}

// Tokens counts n output tokens that came at an interval of gap after the previous ones.
// The first tokens of a request have no gap: pass 0. Several tokens at once share the gap
// evenly, as in Dynamo.
func (r *Request) Tokens(n int, gap time.Duration) {
	r.m.outToks.Add(float64(max(n, 0)))
	if gap > 0 {
		each := gap.Seconds() / float64(n)
		for range n {
			r.m.itl.Observe(each)
		}
	}
}

// Migrated counts a move to another worker; kind is a value of [LabelMigrationType].
func (r *Request) Migrated(kind string) { r.f.migrated.WithLabelValues(r.model, kind).Inc() }

// Result describes the end of a request.
type Result struct {
	ErrorType    string        // [ErrorNone] for success
	Refusal      string        // [RefusedBusy] and so on; empty unless there was no room
	Duration     time.Duration // since arrival
	OutputTokens int
}

// End counts the end of the request; only the first call counts.
func (r *Request) End(res Result) {
	if r.ended.Swap(true) {
		return
	}
	if !r.answered.Swap(true) {
		r.m.queued.Dec()
	}
	if res.Refusal != "" {
		r.f.refused.WithLabelValues(r.model, res.Refusal).Inc()
	}
	status := StatusSuccess
	switch res.ErrorType {
	case ErrorNone:
		r.m.osl.Observe(float64(res.OutputTokens))
	case ErrorCancelled:
		status = StatusError
		r.f.cancels.WithLabelValues(r.model, r.endpoint, r.kind).Inc()
	case ErrorOverload:
		status = StatusError
		r.f.rejects.WithLabelValues(r.model, r.endpoint).Inc()
	default:
		status = StatusError
	}
	r.f.requests.WithLabelValues(r.model, r.endpoint, r.kind, status, res.ErrorType).Inc()
	r.m.duration.Observe(res.Duration.Seconds())
	r.m.active.Dec() // last: a request that is no longer active has been counted
	r.m.inflight.Dec()
}
