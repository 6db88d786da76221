package route

import (
	"container/heap"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/kvindex"
	"github.com/dynctl/dynctl/internal/router"
)

// Fleet describes a run with prefill and decode workers, whose frontend chooses a prefill
// worker first and writes KV while later KV is computed.
type Fleet struct {
	Config  // Workers are the decode workers
	Prefill int
	Limits  router.PrefillLimits
}

// transferRate is the speed of KV between workers, in tokens per second: 80 % of 400 Gbit/s,
// and 128 KiB a token (see [H100]).
const transferRate = 0.8 * 50e9 / (128 << 10)

// FleetResult is what a run with prefill workers gave.
type FleetResult struct {
	Result
	Remote int           // prompts that prefill workers computed
	Gap99  time.Duration // between two tokens of an answer
}

// PlayFleet runs one workload with prefill workers.
func PlayFleet(c Fleet) (FleetResult, error) {
	f := &fleet{simulation: simulation{Config: c.Config, index: kvindex.New(kvindex.Config{}), loads: []*router.Load{router.NewLoad()}}, limits: c.Limits, prefillLoad: router.NewLoad()}
	for i := range c.Workers + c.Prefill {
		w := &worker{id: cluster.InstanceID(i + 1), name: cluster.WorkerName(i + 1), timing: c.Timing}
		w.pool = engine.NewBlockPool(c.Blocks, w)
		f.workers = append(f.workers, w)
	}
	f.open = len(c.Requests)
	for next := 0; f.open > 0; {
		if next < len(c.Requests) {
			at := time.Duration(float64(c.Requests[next].At) / c.Speed)
			if len(f.queue) == 0 || at <= f.queue[0].at {
				f.now = max(f.now, at)
				if err := f.arrive(next); err != nil {
					return FleetResult{}, err
				}
				next++
				continue
			}
		}
		e := heap.Pop(&f.queue).(event)
		f.now = e.at
		if err := e.do(); err != nil {
			return FleetResult{}, err
		}
	}
	slices.Sort(f.gaps)
	return FleetResult{Result: f.result(), Remote: f.remote, Gap99: quantile(f.gaps, 0.99)}, nil
}

// fleet is a run with prefill workers in progress. The decode workers come first.
type fleet struct {
	simulation
	limits      router.PrefillLimits
	prefillLoad *router.Load
	remote      int
	gaps        []time.Duration
}

// candidates returns the decode or the prefill workers, with what is known of a prompt.
func (f *fleet) candidates(hashes []uint64, decode bool) router.View {
	f.index.Lookup(hashes, &f.match)
	var view router.View
	for i, w := range f.workers {
		if i < f.Workers == decode {
			view.Candidates = append(view.Candidates, router.Candidate{
				ID: w.id, Worker: w.name, Overlap: router.Overlap{Device: f.match.Find(w.id).Total()},
				PrefillRate: w.rate(), TransferRate: transferRate, KVBlocks: f.Blocks,
			})
		}
	}
	return view
}

// rate is the speed that a worker tells once it has computed something: that of a step
// with nothing but a chunk of the largest size.
func (w *worker) rate() float64 {
	if w.steps == 0 {
		return 0
	}
	return maxBatchTokens / w.timing.step(batch{prompt: maxBatchTokens, pairs: maxBatchTokens * maxBatchTokens / 2}).Seconds()
}

// arrive decides where the prompt of a request is computed and routes it.
func (f *fleet) arrive(i int) error {
	q := &f.Requests[i]
	whole := router.Request{ID: strconv.Itoa(i), PromptTokens: q.Tokens, BlockSize: BlockSize, Hashes: q.Hashes}
	part := whole
	part.PromptTokens--
	part.Hashes = part.Hashes[:part.PromptTokens/BlockSize]
	decoders, prefillers := f.candidates(q.Hashes, true), f.candidates(part.Hashes, false)
	d, err := f.loads[0].Preview(whole, decoders, f.Policy.Pick)
	if err != nil {
		return err
	}
	p, err := f.prefillLoad.Preview(part, prefillers, f.Policy.Pick)
	if err != nil {
		return err
	}
	state := router.PrefillState{
		PromptTokens: q.Tokens, CachedTokens: q.Tokens - d.Chosen.Uncached(whole), PrefillWorkers: len(prefillers.Candidates),
		Decode:       router.PrefillPlace{Uncached: d.Chosen.Uncached(whole), Waiting: d.Chosen.PrefillTokens, Rate: d.Chosen.PrefillRate},
		Prefill:      router.PrefillPlace{Uncached: p.Chosen.Uncached(part), Waiting: p.Chosen.PrefillTokens, Rate: p.Chosen.PrefillRate, StepTokens: maxBatchTokens},
		TransferRate: transferRate, TransferOverlaps: true,
	}
	for _, c := range prefillers.Candidates {
		state.QueueDepth += max(0, c.Prefills-1)
	}
	share := float64(d.Chosen.ActiveBlocks) / float64(f.Blocks)
	state.Decode.KVShare = &share
	remote, _ := router.DecidePrefill(state, f.limits)
	d, flight, err := f.loads[0].Choose(whole, decoders, f.Policy.Pick)
	if err != nil {
		return err
	}
	at := f.workers[d.Chosen.ID-1]
	if len(q.Hashes)+(q.Output+BlockSize-1)/BlockSize > f.Blocks {
		return fmt.Errorf("request %d does not fit into a cache of %d blocks", i, f.Blocks)
	}
	s := &sequence{Request: q, arrived: f.now, flight: flight}
	if !remote {
		f.enqueue(at, s)
		return nil
	}
	f.remote++
	flight.Prefilled()
	p, hop, err := f.prefillLoad.Choose(part, prefillers, f.Policy.Pick)
	if err != nil {
		return err
	}
	s.landed = true
	first := &Request{At: q.At, Tokens: max(1, part.PromptTokens), Output: 1, Hashes: part.Hashes}
	f.enqueue(f.workers[p.Chosen.ID-1], &sequence{Request: first, arrived: f.now, flight: hop, then: func() {
		hop.Prefilled()
		// What was computed last is written last.
		tail := float64(min(d.Chosen.Uncached(whole), maxBatchTokens)) / transferRate
		f.at(f.now+time.Duration(tail*float64(time.Second)), func() error {
			f.enqueue(at, s)
			return nil
		})
	}})
	return nil
}

func (f *fleet) enqueue(w *worker, s *sequence) {
	w.waiting = append(w.waiting, s)
	f.step(w)
}

// step starts the next step of an idle worker.
func (f *fleet) step(w *worker) {
	if w.busy {
		return
	}
	d, ok := w.begin()
	f.publish(w)
	if !ok {
		return
	}
	w.busy = true
	f.at(f.now+d, func() error {
		w.busy = false
		for i, q := range w.running {
			if w.chunks[i] == 0 && q.generated > 0 {
				f.gaps = append(f.gaps, d)
			}
		}
		w.end(func(q *sequence) {
			if q.then == nil {
				q.flight.Prefilled()
				f.firsts = append(f.firsts, f.now-q.arrived)
			}
		}, func(q *sequence) {
			q.flight.End()
			if q.then != nil {
				q.then()
				return
			}
			f.open--
		})
		f.step(w)
		return nil
	})
}

// FleetRule is a way to decide between local and remote prefill.
type FleetRule struct {
	Name   string
	Limits router.PrefillLimits
}

// FleetRules returns the rules to compare. Threshold is tried with its default, and with
// Dynamo's for isl-bounding.
func FleetRules() []FleetRule {
	var out []FleetRule
	for _, r := range []struct {
		name, rule string
		tokens     int
	}{
		{"slo", cluster.ConditionalSLO, 64}, {"threshold 64", cluster.ConditionalThreshold, 64}, {"threshold 2048", cluster.ConditionalThreshold, 2048},
		{"isl-bounding", cluster.ConditionalISLBounding, 0}, {"isl-or-load", cluster.ConditionalISLOrLoad, 0}, {"off", cluster.ConditionalOff, 0},
	} {
		l := router.PrefillLimits{MaxLocalTokens: r.tokens, MaxQueueDepth: 64} // defaults of dynamod
		l.Conditional, _ = cluster.ParseConditional(r.rule)                    // it is known
		out = append(out, FleetRule{r.name, l})
	}
	return out
}

// runFleets prints a table for each workload and fleet: a row for each rule.
func (p *Plan) runFleets(out io.Writer) error {
	for _, w := range p.Workloads {
		for _, workers := range p.Workers {
			for _, prefill := range p.Prefill {
				if prefill < 1 || prefill >= workers {
					return fmt.Errorf("%d of %d workers cannot prefill: expected from 1 to %d", prefill, workers, workers-1)
				}
				for _, blocks := range p.Blocks {
					p.print(out, "\n%s: %d requests, %d prefill and %d decode workers of %d blocks\n\n", w.Name, len(w.Requests), prefill, workers-prefill, blocks)
					p.print(out, "| rule | speed | remote | TTFT p50 | p90 | p99 | token gap p99 |\n|---|---|---|---|---|---|---|\n")
					for _, rule := range FleetRules() {
						for _, speed := range p.Speeds {
							c := Config{Requests: w.Requests, Policy: Own().Settings[0], Workers: workers - prefill, Blocks: blocks, Speed: speed, Timing: H100}
							r, err := PlayFleet(Fleet{Config: c, Prefill: prefill, Limits: rule.Limits})
							if err != nil {
								return err
							}
							p.print(out, "| %s | %g | %.0f %% | %s | %s | %s | %.0f ms |\n", rule.Name, speed, 100*float64(r.Remote)/float64(r.Requests),
								short(r.P50), short(r.P90), short(r.P99), r.Gap99.Seconds()*1e3)
						}
					}
				}
			}
		}
	}
	return nil
}
