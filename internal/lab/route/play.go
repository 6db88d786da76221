package route

import (
	"slices"
	"strconv"
	"time"

	"github.com/dynctl/dynctl/internal/engine"
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

// Result is what a run gave.
type Result struct {
	Requests int
	Blocks   int // of all prompts
	Reused   int // blocks found in caches
	Computed int // tokens in chunks of prompts
	// Preempted counts how often a sequence lost its blocks and was computed again.
	Preempted int
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
	s, err := newSimulation(c, c.Workers)
	if err != nil {
		return Result{}, err
	}
	s.share()
	if err := s.run(s.arrive); err != nil {
		return Result{}, err
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
	s.jobs[i] = &job{Request: r, number: i, arrived: s.now, flight: flight}
	return s.submit(s.workers[d.Chosen.ID-1], s.jobs[i], engine.Request{})
}

func (s *simulation) result() Result {
	r := Result{Requests: len(s.Requests), Span: s.now, Decision: s.spent / time.Duration(max(1, len(s.Requests)))}
	most := 0
	for _, w := range s.workers {
		r.Blocks += w.blocks
		r.Reused += w.reused
		r.Computed += w.computed
		r.Preempted += int(w.engine.Engine.Stats().PreemptedTotal)
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
