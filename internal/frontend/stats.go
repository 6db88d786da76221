package frontend

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/metrics"
)

// stats gathers the figures of one second, for the event plane.
type stats struct {
	mu sync.Mutex
	s  cluster.FrontendStats
}

func newStats() *stats { return &stats{} }

func (s *stats) add(f func(*cluster.FrontendStats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.s)
}

func (s *stats) begun() { s.add(func(x *cluster.FrontendStats) { x.Started++ }) }

func (s *stats) migrated() { s.add(func(x *cluster.FrontendStats) { x.Migrated++ }) }

// queued, firstToken and tokens record the latencies that operators watch.
func (s *stats) queued(d time.Duration) {
	s.add(func(x *cluster.FrontendStats) { x.Queue.Observe(d) })
}

func (s *stats) firstToken(ttft time.Duration) {
	s.add(func(x *cluster.FrontendStats) { x.TTFT.Observe(ttft) })
}

// tokens counts n tokens that came gap after the previous ones; gap is 0 for the first.
func (s *stats) tokens(n int, gap time.Duration) {
	s.add(func(x *cluster.FrontendStats) {
		x.OutTokens += n
		if gap > 0 && n > 0 {
			for range n {
				x.ITL.Observe(gap / time.Duration(n))
			}
		}
	})
}

// served samples an answer that ended well.
func (s *stats) served(r cluster.ServedRequest) {
	s.add(func(x *cluster.FrontendStats) {
		x.ServedOf++
		if len(x.Served) < cluster.MaxServed {
			x.Served = append(x.Served, r)
		} else if i := rand.IntN(x.ServedOf); i < cluster.MaxServed {
			x.Served[i] = r
		}
	})
}

// take returns the figures since the last call and starts over.
func (s *stats) take() cluster.FrontendStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.s
	s.s = cluster.FrontendStats{}
	return out
}

// publishStats sends the figures of each second, and the last ones when ctx ends.
func (f *Frontend) publishStats(ctx context.Context) {
	bus := f.cfg.Runtime.Bus()
	if bus == nil {
		return
	}
	subject := events.Subject(f.cfg.Runtime.Namespace(), cluster.ComponentFrontend, cluster.TopicFrontendStats)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		s := f.stats.take()
		s.Frontend, s.InstanceID, s.Time, s.InFlight = f.cfg.Node, f.cfg.Runtime.ID(), time.Now(), f.gate.inFlight()
		_ = bus.Publish(context.WithoutCancel(ctx), subject, s) // lost events are counted by the bus
	}
}

// ended counts how a request ended; kind is its error_type label.
func (s *stats) ended(kind string) {
	s.add(func(x *cluster.FrontendStats) {
		switch kind {
		case metrics.ErrorNone:
			x.Finished++
		case metrics.ErrorCancelled:
			x.Cancelled++
		case metrics.ErrorOverload, metrics.ErrorUnavailable:
			x.Rejected++
		default:
			x.Failed++
		}
	})
}
