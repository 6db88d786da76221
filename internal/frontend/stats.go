package frontend

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/metrics"
)

// stats gathers the figures of one second, for the event plane.
type stats struct {
	mu     sync.Mutex
	s      cluster.FrontendStats
	models map[string]*cluster.ModelLoad
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

// of changes the figures of one model. Models that nobody declares have none, so that no client
// fills the memory with names.
func (s *stats) of(model string, f func(*cluster.ModelLoad)) {
	if model == metrics.UnknownModel {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.models[model]
	if m == nil {
		m = &cluster.ModelLoad{Model: model}
		if s.models == nil {
			s.models = map[string]*cluster.ModelLoad{}
		}
		s.models[model] = m
	}
	f(m)
}

// asked counts a request for a model.
func (s *stats) asked(model string) { s.of(model, func(m *cluster.ModelLoad) { m.Started++ }) }

// served samples an answer of a model that ended well.
func (s *stats) served(model string, r cluster.ServedRequest) {
	s.of(model, func(m *cluster.ModelLoad) {
		m.ServedOf++
		if len(m.Served) < cluster.MaxServed {
			m.Served = append(m.Served, r)
		} else if i := rand.IntN(m.ServedOf); i < cluster.MaxServed {
			m.Served[i] = r
		}
	})
}

// take returns the figures since the last call and starts over.
func (s *stats) take() cluster.FrontendStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.s
	out.PerModel = true
	for _, name := range slices.Sorted(maps.Keys(s.models)) {
		m := *s.models[name]
		if most := max(cluster.MaxServedAll/len(s.models), 1); len(m.Served) > most {
			rand.Shuffle(len(m.Served), func(i, k int) { m.Served[i], m.Served[k] = m.Served[k], m.Served[i] })
			m.Served = m.Served[:most]
		}
		out.Models = append(out.Models, m)
	}
	s.s, s.models = cluster.FrontendStats{}, nil
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
