package worker

import (
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/nixl"
)

// meter brings the engine's figures into the metrics. The engine counts; the meter
// only carries over what has been added since the last time.
type meter struct {
	*metrics.Worker
	nixl *metrics.NIXL
	last cluster.WorkerStats
}

func newMeter(w *Worker) *meter {
	return (&meter{nixl: metrics.NewNIXL(w.cfg.Metrics, w.Name(), nixl.HistogramBounds())}).in(w)
}

// in returns a meter with new series for the present role.
func (m *meter) in(w *Worker) *meter {
	endpoint := cluster.EndpointGenerate
	if w.Role() == cluster.RolePrefill {
		endpoint = cluster.EndpointPrefill
	}
	return &meter{nixl: m.nixl, Worker: metrics.NewWorker(w.cfg.Metrics, metrics.WorkerLabels{
		Namespace: w.cfg.Namespace, Component: w.Role().Component(), Endpoint: endpoint,
		Model: w.cfg.Assignment.Model.Name, Worker: w.Name(),
	}, time.Now())}
}

// update takes in the present figures.
func (m *meter) update(s cluster.WorkerStats, queueDepth int) {
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
	m.Preemptions.Add(float64(s.PreemptedTotal - m.last.PreemptedTotal))
	m.Evictions.Add(float64(s.EvictedTotal - m.last.EvictedTotal))
	m.PromptTokens.Add(float64(s.ComputedTotal - m.last.ComputedTotal))
	m.GeneratedTokens.Add(float64(s.GeneratedTotal - m.last.GeneratedTotal))
	m.DraftTokens.Add(float64(s.DraftTokensTotal - m.last.DraftTokensTotal))
	m.AcceptedTokens.Add(float64(s.AcceptedTokensTotal - m.last.AcceptedTokensTotal))
	m.StepWait.Add(time.Duration(s.StepWaitNanosTotal - m.last.StepWaitNanosTotal).Seconds())
	m.Cancellations.Add(float64(s.CancelledTotal - m.last.CancelledTotal))
	m.last = s
}

// measure brings the metrics up to date.
func (w *Worker) measure(s cluster.WorkerStats) {
	w.metering.Lock()
	defer w.metering.Unlock()
	m := w.meter()
	m.update(s, w.cfg.QueueDepth())
	if a := w.agent.Load(); a != nil {
		m.updateNIXL(a)
	}
}

// remeter puts the metrics under the labels of the present role. Totals go on.
func (w *Worker) remeter() {
	w.metering.Lock()
	defer w.metering.Unlock()
	old := w.meter()
	next := old.in(w)
	next.last = old.last
	w.meters.Store(next)
	old.Worker.Close()
}

// step takes in one step of the engine, on the goroutine of its scheduler.
func (m *meter) step(r engine.StepReport) {
	m.Step(r.Busy, r.Predicted, r.PrefillTokens, r.Decodes > 0)
}

// close removes the worker's series.
func (m *meter) close() {
	m.Worker.Close()
	m.nixl.Close()
}

// updateNIXL takes in what the NIXL agent counted.
func (m *meter) updateNIXL(a *nixl.Agent) {
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
	m.nixl.Update(f)
}
