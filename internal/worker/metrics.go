package worker

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/nixl"
)

// meters bring the figures of engine and data plane into the metrics. These count; the
// meters only carry over what has been added since the last time. Those of the worker have
// the labels of its role.
type meters struct {
	registry *metrics.Registry
	labels   metrics.WorkerLabels // without those of a role
	current  atomic.Pointer[metrics.Worker]

	mu   sync.Mutex // held while figures are carried over
	nixl *metrics.NIXL
	last cluster.WorkerStats
}

func newMeters(cfg Config) *meters {
	return &meters{registry: cfg.Metrics, labels: metrics.WorkerLabels{
		Namespace: cfg.Namespace, Model: cfg.Assignment.Model.Name, Worker: cfg.Assignment.Name,
	}}
}

// now are the metrics of the present role, nil before the first.
func (m *meters) now() *metrics.Worker { return m.current.Load() }

// relabel puts the metrics under the labels of a role. Totals go on.
func (m *meters) relabel(as cluster.Role, endpoint string) *metrics.Worker {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.nixl == nil {
		m.nixl = metrics.NewNIXL(m.registry, m.labels.Worker, nixl.HistogramBounds())
	}
	labels := m.labels
	labels.Component, labels.Endpoint = as.Component(), endpoint
	next := metrics.NewWorker(m.registry, labels, time.Now())
	if old := m.current.Swap(next); old != nil {
		old.Close()
	}
	return next
}

// measure brings the metrics up to date. agent is nil before there is one.
func (m *meters) measure(s cluster.WorkerStats, queueDepth int, agent *nixl.Agent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	update(m.now(), m.last, s, queueDepth)
	m.last = s
	if agent != nil {
		m.nixl.Update(figuresOf(agent))
	}
}

// step takes in one step of the engine, on the goroutine of its scheduler.
func (m *meters) step(r engine.StepReport) {
	m.now().Step(r.Busy, r.Predicted, r.PrefillTokens, r.Decodes > 0)
}

// close removes the worker's series.
func (m *meters) close() {
	m.now().Close()
	m.nixl.Close()
}

// update takes in the present figures: what has been added since the last time.
func update(m *metrics.Worker, last, s cluster.WorkerStats, queueDepth int) {
	m.TotalBlocks.Set(float64(s.KVTotal))
	if s.KVTotal > 0 {
		m.CacheUsage.Set(float64(s.KVUsed()) / float64(s.KVTotal))
	}
	if s.PromptTokensTotal > 0 {
		m.CacheHitRate.Set(float64(s.CachedTokensTotal) / float64(s.PromptTokensTotal))
	}
	free := s.KVTotal - s.KVUsed() - s.KVCached
	for state, n := range map[string]int{
		"free": free, "active": s.KVActive, "cached": s.KVCached, "incoming": s.KVIncoming,
		"outgoing": s.KVOutgoing, "quarantined": s.Quarantined,
	} {
		m.Blocks(state, n)
	}
	m.Sequences("running", s.Running)
	m.Sequences("waiting", s.Waiting)
	m.Sequences("remote", s.RemoteWait)
	m.PrefillQueueDepth.Set(float64(queueDepth))
	m.Preemptions.Add(float64(s.PreemptedTotal - last.PreemptedTotal))
	m.Evictions.Add(float64(s.EvictedTotal - last.EvictedTotal))
	m.PromptTokens.Add(float64(s.ComputedTotal - last.ComputedTotal))
	m.GeneratedTokens.Add(float64(s.GeneratedTotal - last.GeneratedTotal))
	m.DraftTokens.Add(float64(s.DraftTokensTotal - last.DraftTokensTotal))
	m.AcceptedTokens.Add(float64(s.AcceptedTokensTotal - last.AcceptedTokensTotal))
	m.StepWait.Add(time.Duration(s.StepWaitNanosTotal - last.StepWaitNanosTotal).Seconds())
	m.Cancellations.Add(float64(s.CancelledTotal - last.CancelledTotal))
}

// figuresOf returns the counters of a NIXL agent.
func figuresOf(a *nixl.Agent) metrics.NIXLFigures {
	s := a.Stats()
	f := metrics.NIXLFigures{
		TxBytes: s.TxBytes, RxBytes: s.RxBytes, InBytes: s.InBytes, OutBytes: s.OutBytes,
		TxRequests: s.TxRequests, RxRequests: s.RxRequests, XferTime: s.XferTime,
		Sent: s.NotifySent, Received: s.NotifyReceived, OpenTickets: s.TicketsOpen, RegisteredBytes: s.RegisteredBytes,
		Errors: map[string]uint64{}, Refused: map[string]uint64{}, Peers: map[string]int{},
		Fallbacks: map[metrics.NIXLFallback]uint64{}, Transports: map[string]metrics.NIXLTraffic{},
	}
	for status, n := range s.Errors {
		f.Errors[status.Label()] = n
	}
	for reason, n := range s.Refused {
		f.Refused[reason.String()] = n
	}
	for name, t := range s.Transports {
		f.Transports[name] = metrics.NIXLTraffic{
			TxBytes: t.TxBytes, RxBytes: t.RxBytes,
			XferTime: metrics.NIXLTimes(t.XferTime), PostTime: metrics.NIXLTimes(t.PostTime),
		}
	}
	for b, n := range s.Fallbacks {
		f.Fallbacks[metrics.NIXLFallback{Wanted: b.Wanted, Used: b.Used, Reason: b.Status.String()}] = n
	}
	for _, p := range a.Peers() {
		if p.Transport != "" {
			f.Peers[p.Transport]++
		}
	}
	return f
}
