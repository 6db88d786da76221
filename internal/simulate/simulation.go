package simulate

import (
	"context"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/fairqueue"
	"github.com/dynctl/dynctl/internal/kvindex"
	"github.com/dynctl/dynctl/internal/router"
)

// simulation is a run in progress.
type simulation struct {
	Config
	policy router.Policy
	now    time.Duration
	agenda agenda

	workers []*worker // all that are not gone, in the order of their ids
	lastID  cluster.InstanceID
	devices []*device // that workers share; none if each has its own
	want    map[cluster.Role]int

	index    *kvindex.Index
	match    kvindex.Match
	load     *router.Load // of decode workers
	prefills *router.Load
	view     [2][]router.Candidate // scratch of views

	gate     *fairqueue.Gate
	queue    []*job // that wait for the gate, in order
	stranded []*job // that wait for a decode worker
	messages []*hop // the prefill queue
	network  network

	jobs    []*job // by their place; nil for free ones
	free    []int
	open    int // requests that have come and not ended
	ended   bool
	arrived uint64
	flying  int // hops that are not over

	result *Result
	tally  tally
	window window
}

// Run plays a simulation until the load has ended and all its requests have, or ctx ends.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	s, err := newSimulation(cfg)
	if err != nil {
		return nil, err
	}
	if err := s.play(ctx); err != nil {
		return nil, err
	}
	return s.result, nil
}

func newSimulation(cfg Config) (*simulation, error) {
	cfg, policy, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &simulation{
		Config: cfg, policy: policy, index: kvindex.New(kvindex.Config{}), load: router.NewLoad(), prefills: router.NewLoad(),
		want: map[cluster.Role]int{cluster.RolePrefill: cfg.Prefill, cluster.RoleDecode: cfg.Decode}, result: &Result{Version: Version, Seed: cfg.Seed},
	}
	s.gate = fairqueue.NewGate(s.capacity(), fairqueue.Limits{Waiting: cfg.MaxQueued, Cost: maxQueuedTokens})
	s.network.s = s
	for range cfg.SharedDevices {
		s.devices = append(s.devices, s.newDevice())
	}
	s.tally.begin(s)
	for _, role := range roles {
		for range s.want[role] {
			if err := s.start(role, 0); err != nil {
				return nil, err
			}
		}
	}
	s.next()
	s.every(cfg.StatusPeriod, s.report)
	s.every(cfg.Interval, s.tally.point)
	if cfg.Controller != nil {
		s.every(cfg.Tick, s.control)
	}
	return s, nil
}

// play has everything happen until the load has ended and all its requests have.
func (s *simulation) play(ctx context.Context) error {
	for n := 0; s.open > 0 || !s.ended || s.flying > 0; n++ {
		if n%4096 == 0 && ctx.Err() != nil {
			return fmt.Errorf("simulate: %w", context.Cause(ctx))
		}
		e := s.agenda.take()
		s.now = e.at
		if err := e.do(); err != nil {
			return err
		}
	}
	for _, w := range s.workers {
		if err := w.engine.Engine.Check(ctx, true); err != nil {
			return fmt.Errorf("simulate: worker %s after the last request: %w", w.name, err)
		}
	}
	s.tally.end()
	return nil
}

var roles = []cluster.Role{cluster.RolePrefill, cluster.RoleDecode}

func (s *simulation) at(t time.Duration, do func() error) { s.agenda.add(t, do) }

// every calls do each period, for as long as there is load.
func (s *simulation) every(period time.Duration, do func() error) {
	var again func() error
	at := s.now + period
	again = func() error {
		if err := do(); err != nil {
			return err
		}
		at += period
		s.at(at, again)
		return nil
	}
	s.at(at, again)
}

// next plans the next arrival.
func (s *simulation) next() {
	r, ok := s.Load.Next()
	if !ok {
		s.ended = true
		return
	}
	s.at(max(r.At, s.now), func() error {
		s.next()
		return s.arrive(&r)
	})
}

// report makes the present figures of all workers known to the router.
func (s *simulation) report() error {
	for _, w := range s.workers {
		if w.state != Starting {
			w.report()
		}
	}
	return nil
}

// ready returns the workers of a role that may get requests.
func (s *simulation) ready(role cluster.Role) (n int) {
	for _, w := range s.workers {
		if w.role == role && w.state == Ready {
			n++
		}
	}
	return n
}
