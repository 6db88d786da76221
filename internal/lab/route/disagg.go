package route

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
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
	s, err := newSimulation(c.Config, c.Workers+c.Prefill)
	if err != nil {
		return FleetResult{}, err
	}
	f := &fleet{simulation: s, limits: c.Limits, prefillLoad: router.NewLoad()}
	f.loads = []*router.Load{router.NewLoad()}
	f.answer = f.answered
	if err := f.run(f.arrive); err != nil {
		return FleetResult{}, err
	}
	slices.Sort(f.gaps)
	return FleetResult{Result: f.result(), Remote: f.remote, Gap99: quantile(f.gaps, 0.99)}, nil
}

// fleet is a run with prefill workers in progress. The decode workers come first.
type fleet struct {
	*simulation
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
				PrefillRate: f.rates[i], TransferRate: transferRate, KVBlocks: f.Blocks,
			})
		}
	}
	return view
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
		Decode:       router.PrefillPlace{Uncached: d.Chosen.Uncached(whole), Waiting: d.Chosen.PrefillTokens, Prompts: float64(d.Chosen.Prefills), Rate: d.Chosen.PrefillRate, KVTokens: f.Blocks * BlockSize},
		Prefill:      router.PrefillPlace{Uncached: p.Chosen.Uncached(part), Waiting: p.Chosen.PrefillTokens, Prompts: float64(p.Chosen.Prefills), Rate: p.Chosen.PrefillRate, StepTokens: maxBatchTokens},
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
	j := &job{Request: q, number: i, arrived: f.now, flight: flight}
	f.jobs[i] = j
	if !remote {
		return f.submit(at, j, engine.Request{})
	}
	f.remote++
	f.open++ // the transfer
	flight.Prefilled()
	p, hop, err := f.prefillLoad.Choose(part, prefillers, f.Policy.Pick)
	if err != nil {
		return err
	}
	from := f.workers[p.Chosen.ID-1]
	t := &transfer{f: f, from: from, to: at}
	j.transfer = t
	err = from.prefill(j, max(1, part.PromptTokens), func(held *engine.Held) error {
		hop.Prefilled()
		hop.End()
		t.held = held
		return t.begin(maxBatchTokens) // the rest was written while this was computed
	})
	if err != nil {
		return err
	}
	if err := f.step(from); err != nil {
		return err
	}
	return f.submit(at, j, engine.Request{
		Decide: func(int, int) engine.Decision { return engine.Decision{Remote: true} },
		Remote: func(r *engine.Reservation) {
			t.room = r
			f.at(f.now, func() error { return t.begin(r.Wanted()) })
		},
	})
}

// answered notes the time between tokens. A prompt that the decode worker found in its
// cache is not fetched.
func (f *fleet) answered(j *job, o engine.Output) error {
	if o.First == nil {
		f.gaps = append(f.gaps, f.now-j.token)
	} else if t := j.transfer; t != nil && !o.First.Remote {
		t.local = true
		return t.begin(0)
	}
	return nil
}

// FleetRule is a way to decide between local and remote prefill.
type FleetRule struct {
	Name   string
	Limits router.PrefillLimits
}

// FleetRules returns the rules to compare, the default first. Threshold is tried with its
// default, and with Dynamo's for isl-bounding.
func FleetRules() []FleetRule {
	var out []FleetRule
	for _, r := range []struct {
		name, rule string
		tokens     int
	}{
		{cluster.ConditionalLeastDelay, cluster.ConditionalLeastDelay, 64}, {"slo", cluster.ConditionalSLO, 64}, {"threshold 64", cluster.ConditionalThreshold, 64}, {"threshold 2048", cluster.ConditionalThreshold, 2048},
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
