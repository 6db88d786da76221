package route

import (
	"container/heap"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/kvindex"
	"github.com/dynctl/dynctl/internal/router"
)

// Config describes one run.
type Config struct {
	Requests []Request
	Policy   router.Policy
	Workers  int
	Blocks   int     // of each worker's cache
	Speed    float64 // the requests come this many times as fast
	Timing   Timing
	// Frontends take the requests in turns; 0 means one. Each counts what the others have in
	// flight with a delay, or, if that is 0, not at all.
	Frontends int
	SyncDelay time.Duration
}

// Delays of what the router hears of the workers.
const (
	eventDelay   = 5 * time.Millisecond
	statusPeriod = time.Second
)

// Result is what a run gave.
type Result struct {
	Requests int
	Blocks   int // of all prompts
	Reused   int // blocks found in caches
	Computed int // prompt tokens
	// Balance is the largest number of prompt tokens that a worker computed, relative to
	// the mean.
	Balance       float64
	P50, P90, P99 time.Duration // time to the first token
	Span          time.Duration // until the last request was done
	Decision      time.Duration // the router's processor time per decision, measured
}

// Reuse returns the share of blocks that were found in caches.
func (r Result) Reuse() float64 { return float64(r.Reused) / float64(max(1, r.Blocks)) }

// Play runs one workload with one policy.
func Play(c Config) (Result, error) {
	s := simulation{Config: c, index: kvindex.New(kvindex.Config{}), rates: make([]float64, c.Workers)}
	for i := range c.Workers {
		w := &worker{id: cluster.InstanceID(i + 1), name: cluster.WorkerName(i + 1), timing: c.Timing}
		w.pool = engine.NewBlockPool(c.Blocks, w)
		s.workers = append(s.workers, w)
	}
	s.share()
	return s.run()
}

// simulation is a run in progress.
type simulation struct {
	Config
	now     time.Duration
	queue   agenda
	order   uint64 // of events at the same time
	workers []*worker
	rates   []float64 // as the router knows them
	index   *kvindex.Index
	loads   []*router.Load // of the frontends
	match   kvindex.Match
	firsts  []time.Duration
	open    int // requests that are not done
	spent   time.Duration
}

func (s *simulation) at(t time.Duration, do func() error) {
	s.order++
	heap.Push(&s.queue, event{t, s.order, do})
}

func (s *simulation) run() (Result, error) {
	s.open = len(s.Requests)
	next := 0
	s.at(statusPeriod, s.status)
	for s.open > 0 {
		if next < len(s.Requests) {
			at := time.Duration(float64(s.Requests[next].At) / s.Speed)
			if len(s.queue) == 0 || at <= s.queue[0].at {
				s.now = max(s.now, at)
				if err := s.arrive(next); err != nil {
					return Result{}, err
				}
				next++
				continue
			}
		}
		e := heap.Pop(&s.queue).(event)
		s.now = e.at
		if err := e.do(); err != nil {
			return Result{}, err
		}
	}
	return s.result(), nil
}

// arrive routes a request.
func (s *simulation) arrive(i int) error {
	r := &s.Requests[i]
	start := time.Now()
	request := router.Request{ID: strconv.Itoa(i), PromptTokens: r.Tokens, BlockSize: BlockSize, Hashes: r.Hashes}
	view := router.View{Candidates: make([]router.Candidate, len(s.workers))}
	for k, w := range s.workers {
		view.Candidates[k] = router.Candidate{ID: w.id, Worker: w.name, PrefillRate: s.rates[k], KVBlocks: s.Blocks}
	}
	s.index.Lookup(r.Hashes, &s.match)
	for _, o := range s.match.Overlaps {
		view.Candidates[o.Worker-1].Overlap.Device = o.Total()
	}
	d, flight, err := s.loads[i%len(s.loads)].Choose(request, view, s.Policy.Pick)
	s.spent += time.Since(start)
	if err != nil {
		return err
	}
	w := s.workers[d.Chosen.ID-1]
	if len(r.Hashes)+(r.Output+BlockSize-1)/BlockSize > s.Blocks {
		return fmt.Errorf("request %d does not fit into a cache of %d blocks", i, s.Blocks)
	}
	w.waiting = append(w.waiting, &sequence{Request: r, arrived: s.now, flight: flight})
	s.step(w)
	return nil
}

// step starts the next step of an idle worker.
func (s *simulation) step(w *worker) {
	if w.busy {
		return
	}
	d, ok := w.begin()
	s.publish(w)
	if !ok {
		return
	}
	w.busy = true
	s.at(s.now+d, func() error {
		w.busy = false
		w.end(func(q *sequence) {
			q.flight.Prefilled()
			s.firsts = append(s.firsts, s.now-q.arrived)
		}, func(q *sequence) {
			q.flight.End()
			s.open--
		})
		s.step(w)
		return nil
	})
}

// publish sends the KV events of a worker to the index.
func (s *simulation) publish(w *worker) {
	if len(w.events) == 0 {
		return
	}
	events := w.events
	w.events = nil
	s.at(s.now+eventDelay, func() error {
		for _, e := range events {
			if e.stored {
				s.index.Store(w.id, kvindex.Device, e.hashes)
			} else {
				s.index.Remove(w.id, kvindex.Device, e.hashes)
			}
		}
		return nil
	})
}

// status tells the router how fast the workers compute prompts.
func (s *simulation) status() error {
	for i, w := range s.workers {
		if w.prefilling > 0 {
			s.rates[i] = float64(w.prefilled) / w.prefilling.Seconds()
		}
	}
	s.at(s.now+statusPeriod, s.status)
	return nil
}

func (s *simulation) result() Result {
	r := Result{Requests: len(s.Requests), Span: s.now, Decision: s.spent / time.Duration(max(1, len(s.Requests)))}
	most := 0
	for _, w := range s.workers {
		r.Blocks += w.blocks
		r.Reused += w.reused
		r.Computed += w.computed
		most = max(most, w.computed)
	}
	r.Balance = float64(most) * float64(len(s.workers)) / float64(max(1, r.Computed))
	slices.Sort(s.firsts)
	r.P50, r.P90, r.P99 = quantile(s.firsts, 0.5), quantile(s.firsts, 0.9), quantile(s.firsts, 0.99)
	return r
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// event is something that happens at a time; agenda holds the next ones, the first first.
type event struct {
	at    time.Duration
	order uint64
	do    func() error
}

type agenda []event

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].order < a[j].order
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(event)) }
func (a *agenda) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}
