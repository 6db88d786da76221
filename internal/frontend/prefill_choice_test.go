package frontend

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/kvindex"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/router"
)

// cached puts the first n blocks of a prompt into the cache of a worker, as the index
// sees it.
func (f *front) cached(fk *fake, prompt string, n int) {
	chain := blockhash.Chain{BlockSize: testBlock, Seed: cluster.DefaultHashSeed}
	chain.Extend(tokens(prompt))
	f.caches.came(fk.drt.ID(), fk.name)
	f.caches.index.Store(fk.drt.ID(), kvindex.Device, chain.Seq[:n])
}

// waits holds back what a prefill worker answers until release is closed. It opens a
// room at once.
func waits(gen generator, release <-chan struct{}) generator {
	return func(ctx context.Context, req protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
		return gen(ctx, req, func(o protocol.EngineOutput) error {
			if o.Timing != nil {
				select {
				case <-release:
				case <-ctx.Done():
				}
			}
			return send(o)
		})
	}
}

// With the policy kv, prompts go to the prefill worker that has them in its cache; with
// others the cache decides nothing. What the worker found is counted.
func TestPrefillWorkerIsChosenByItsCache(t *testing.T) {
	for _, background := range []bool{false, true} {
		w := newWorld(t)
		pre := []*fake{w.prefiller("worker-1", holds("worker-1", nil), withBootstrap), w.prefiller("worker-2", holds("worker-2", nil), withBootstrap)}
		told := make(chan struct{})
		w.fake("worker-3", say("abc", hold(0, told)))
		s := routing()
		s.change(func(k *Settings) { k.Policy, k.Background = router.KV, background })
		f := w.routed(s, 2, 1)
		for i, p := range pre {
			prompt := strings.Repeat(string(rune('a'+i)), 5*testBlock+1)
			f.cached(p, prompt, 3)
			done := make(chan answer, 1)
			go func() { done <- wholeAnswer(t, f.post("/v1/completions", textBody(body{"prompt": prompt}))) }()
			var d cluster.RouterDecision
			patience.Until(t, "the prefill worker has told what it found", func() bool {
				for _, d = range f.decisions.find("", 1) {
					if d.Phase == cluster.RolePrefill && d.Prefill != "" && d.Chosen == p.name {
						return true
					}
				}
				return false
			})
			if d.Policy != router.KV || d.Predicted != 3 || d.Overlap != 1 || d.Prefill != p.name || d.Blocks != 5 || d.PromptToks != 5*testBlock+1 {
				t.Errorf("background %t: %+v", background, d)
			}
			told <- struct{}{}
			<-done
			if n := len(p.got()); n != 1 {
				t.Errorf("background %t: %s was asked %d times", background, p.name, n)
			}
			f.caches.mu.Lock()
			if got := f.caches.workers[p.drt.ID()].accuracy; got != (cluster.KVAccuracy{Requests: 1, Predicted: 3, Found: 1, False: 2}) {
				t.Errorf("background %t: accuracy of %s: %+v", background, p.name, got)
			}
			f.caches.mu.Unlock()
			if got := f.metric(`dynamo_frontend_kv_found_blocks_total{worker="` + p.name + `"}`); got != 1 {
				t.Errorf("background %t: %v blocks found at %s", background, got, p.name)
			}
		}
		close(told)
		s.change(func(k *Settings) { k.Policy = router.RoundRobin })
		wholeAnswer(t, f.post("/v1/completions", longPrompt()))
		if d := f.decisions.find("", 1)[0]; d.Phase != cluster.RolePrefill || d.Policy != router.LeastLoaded {
			t.Errorf("round-robin: %+v", d)
		}
		if background {
			continue // the answer of the decode worker, which waits for no KV here, may end the prefill first
		}
		// What a worker finds was reusable, although the index did not know it.
		var d cluster.RouterDecision
		patience.Until(t, "the prefill worker has told what it found", func() bool {
			for _, d = range f.decisions.find("", 2) {
				if d.Phase == cluster.RolePrefill && d.Policy == router.LeastLoaded && d.Prefill != "" {
					return true
				}
			}
			return false
		})
		if d.Predicted != 0 || d.Overlap != 1 || *d.Reusable != 1 {
			t.Errorf("background %t: predicted %d, found %d of %d reusable", background, d.Predicted, d.Overlap, *d.Reusable)
		}
	}
}

// Equal prompts that come at once are computed by one prefill worker, although the others
// are idle.
func TestBurstOfEqualPrompts(t *testing.T) {
	w := newWorld(t)
	release := make(chan struct{})
	var pre []*fake
	for _, name := range []string{"worker-1", "worker-2", "worker-3"} {
		pre = append(pre, w.prefiller(name, waits(holds(name, nil), release)))
	}
	w.fake("worker-4", say("abc"))
	s := routing()
	s.change(func(k *Settings) { k.Policy = router.KV })
	f := w.routed(s, 3, 1)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			wholeAnswer(t, f.post("/v1/completions", textBody(body{"prompt": strings.Repeat("x", 10*testBlock)})))
		})
	}
	count := func() (all, most int) {
		for _, p := range pre {
			n := len(p.got())
			all, most = all+n, max(most, n)
		}
		return all, most
	}
	patience.Until(t, "all are at prefill workers", func() bool { all, _ := count(); return all == 6 })
	if _, most := count(); most != 6 {
		t.Errorf("%d of 6 equal prompts went to one worker", most)
	}
	close(release)
	wg.Wait()
}

// A prompt counts as waiting at its prefill worker until it is computed, and as in flight
// until the decode worker has its KV.
func TestPrefillIsBooked(t *testing.T) {
	for _, background := range []bool{false, true} {
		w := newWorld(t)
		computes, decodes := make(chan struct{}), make(chan struct{})
		pre := w.prefiller("worker-1", waits(holds("worker-1", nil), computes), withBootstrap)
		dec := w.fake("worker-2", say("abc", hold(0, decodes)))
		s := routing()
		s.change(func(k *Settings) { k.Background = background })
		f := w.routed(s, 1, 1)
		load := func() (inFlight, prefills int) {
			return f.prefillLoad.InFlight(pre.drt.ID()), f.prefillLoad.Prefills(pre.drt.ID())
		}
		done := make(chan answer, 1)
		go func() { done <- wholeAnswer(t, f.post("/v1/completions", longPrompt())) }()
		patience.Until(t, "the prompt is being computed", func() bool { n, p := load(); return n == 1 && p == 1 && len(pre.got()) == 1 })
		close(computes)
		patience.Until(t, "the prompt is computed", func() bool { _, p := load(); return p == 0 })
		patience.Until(t, "the decode worker waits for it", func() bool { return f.load.InFlight(dec.drt.ID()) == 1 })
		if n := f.load.Prefills(dec.drt.ID()); n != 0 {
			t.Errorf("background %t: the prompt also waits at the decode worker", background)
		}
		if n, _ := load(); n != 1 {
			t.Errorf("background %t: %d in flight before the decode worker has the KV", background, n)
		}
		close(decodes)
		<-done
		patience.Until(t, "nothing is in flight", func() bool { n, p := load(); return n == 0 && p == 0 })
	}
}

// The decision between remote and local prefill counts what the decode worker has cached
// that would be chosen, and follows the rule that is set.
func TestConditionalDisaggregation(t *testing.T) {
	w := newWorld(t)
	pre := w.prefiller("worker-1", holds("worker-1", nil))
	one, two := w.fake("worker-2", say("abc")), w.fake("worker-3", say("abc"))
	s := routing()
	s.change(func(k *Settings) { k.Policy = router.KV })
	f := w.routed(s, 1, 2)
	const blocks = 20
	prompt := strings.Repeat("y", blocks*testBlock)
	f.cached(two, prompt, blocks/2)
	f.caches.came(pre.drt.ID(), pre.name)
	f.caches.came(one.drt.ID(), one.name)
	inUse := 0
	speeds := func(fk *fake, rate float64, kvBlocks int) {
		f.caches.status(cluster.WorkerStatus{InstanceID: fk.drt.ID(), BlockBytes: 1000, Stats: cluster.WorkerStats{
			PrefillRate: rate, KVTotal: kvBlocks, KVActive: inUse, BlockSize: testBlock,
		}})
	}
	rule := func(text string) func(*Settings) {
		return func(k *Settings) {
			c, err := cluster.ParseConditional(text)
			if err != nil {
				t.Fatal(err)
			}
			k.Prefill.Conditional = c
		}
	}
	seen := map[*fake]int{}
	for _, tc := range []struct {
		name     string
		settings func(*Settings)
		speeds   func()
		why      string // of a local prefill
		reason   string // of a remote one
	}{
		{name: "threshold above", settings: func(k *Settings) { k.Prefill.MaxLocalTokens = blocks/2*testBlock - 1 }, reason: "long prompt"},
		{name: "threshold below", settings: func(k *Settings) { k.Prefill.MaxLocalTokens = blocks / 2 * testBlock }, why: "cached"},
		{name: "bounded", settings: rule("isl_bounding"), why: "cached"},
		{name: "not bounded", settings: rule(`{"policy":"isl_bounding","eff_isl_ratio_threshold":0.5}`), reason: "long prompt"},
		{name: "guard without a signal", settings: rule(`{"decode_busy_threshold":0.5}`), reason: "decode worker busy"},
		{name: "guard", settings: rule(`{"decode_busy_threshold":0.5}`), speeds: func() { speeds(two, 0, 100) }, why: "cached"},
		{name: "guard, by what the worker says", speeds: func() { inUse = 60; speeds(two, 0, 100); inUse = 0 }, reason: "decode worker busy"},
		{name: "load", settings: rule("prefill-load"), reason: "prefill worker free"},
		{name: "off", settings: rule("off"), reason: "always remote"},
		{name: "slo, speeds unknown", settings: rule("slo"), why: "cached"},
		{name: "slo, slow decode worker", speeds: func() { speeds(two, 49, 100); speeds(pre, 100, 100) }, reason: "sooner remotely"},
		{name: "slo, fast decode worker", speeds: func() { speeds(two, 51, 100) }, why: "sooner locally"},
		// Half as much to compute as at the prefill worker; the prompt takes a tenth of the pool.
		{name: "least-delay, idle decode worker", settings: rule("least-delay"), speeds: func() { speeds(two, 100, 100) }, why: "less delay locally"},
		{name: "least-delay, by what the worker says", speeds: func() { inUse = 30; speeds(two, 100, 100); inUse = 0 }, reason: "less delay remotely"},
	} {
		if tc.settings != nil {
			s.change(tc.settings)
		}
		if tc.speeds != nil {
			tc.speeds()
		}
		wholeAnswer(t, f.post("/v1/completions", textBody(body{"prompt": prompt})))
		asked := len(pre.got()) - seen[pre]
		seen[pre] += asked
		if len(two.got()) != seen[two]+1 {
			t.Fatalf("%s: the decode worker with the cache was not chosen", tc.name)
		}
		hints := two.got()[seen[two]].Disagg
		seen[two]++
		if hints.Why != tc.why || asked != map[bool]int{true: 0, false: 1}[tc.why != ""] {
			t.Errorf("%s: local because %q, %d asked; want %q", tc.name, hints.Why, asked, tc.why)
		}
		if d := f.decisions.find("", 1)[0]; tc.why == "" && (d.Phase != cluster.RolePrefill || d.PrefillWhy != tc.reason) {
			t.Errorf("%s: remote because %q, want %q", tc.name, d.PrefillWhy, tc.reason)
		}
	}
	// With decode-first the decode worker decides, and is told the speeds of others.
	s.change(func(k *Settings) { k.Strategy = protocol.StrategyDecodeFirst })
	f.cached(pre, prompt, 5)
	f.caches.status(cluster.WorkerStatus{InstanceID: pre.drt.ID(), BlockBytes: 1000, Stats: cluster.WorkerStats{
		PrefillRate: 123, BlockSize: testBlock, TransferBytesTotal: 4000, TransferNanosTotal: uint64(2 * time.Second), Prefilling: 3, PrefillTokens: 4567,
	}})
	wholeAnswer(t, f.post("/v1/completions", textBody(body{"prompt": prompt})))
	want := protocol.PrefillHints{Rate: 123, TransferRate: 2 * testBlock, Prompts: 3, Waiting: 4567, Cached: 5 * testBlock}
	if h := two.got()[seen[two]].Disagg.Prefills; h != want {
		t.Errorf("hints %+v, want %+v", h, want)
	}
}

// The decision knows what waits at either worker, and not what only keeps its KV.
func TestPrefillStateKnowsTheLoad(t *testing.T) {
	w := newWorld(t)
	pre := w.prefiller("worker-1", holds("worker-1", nil), func(fk *fake) { fk.card.Runtime.MaxBatchTokens = 77 })
	dec := w.fake("worker-2", say("abc"))
	f := w.routed(routing(), 1, 1)
	f.caches.came(pre.drt.ID(), pre.name)
	f.caches.status(cluster.WorkerStatus{InstanceID: pre.drt.ID(), BlockBytes: 1000, Stats: cluster.WorkerStats{
		BlockSize: testBlock, PrefillRate: 5, TransferBytesTotal: 4000, TransferNanosTotal: uint64(2 * time.Second),
	}})
	book := func(l *router.Load, fk *fake, tokens int) *router.Flight {
		_, flight, err := l.Choose(router.Request{PromptTokens: tokens, BlockSize: testBlock}, router.View{Candidates: []router.Candidate{{ID: fk.drt.ID()}}}, f.policies[router.LeastLoaded].Pick)
		if err != nil {
			t.Fatal(err)
		}
		return flight
	}
	for _, tokens := range []int{100, 200, 400} {
		book(f.prefillLoad, pre, tokens)
	}
	book(f.prefillLoad, pre, 800).Prefilled()
	book(f.load, dec, 50)
	f.caches.came(dec.drt.ID(), dec.name)
	f.caches.status(cluster.WorkerStatus{InstanceID: dec.drt.ID(), Stats: cluster.WorkerStats{KVTotal: 10, KVActive: 5, BlockSize: testBlock}})
	g := f.newGeneration(f.registry.find(testModel), protocol.PreprocessedRequest{TokenIDs: tokens(strings.Repeat("x", 2*testBlock))}, nil)
	candidates := g.prefillCandidates(f.prefills.Instances(), nil)
	r, _ := g.describePrefill(candidates)
	got, likely := g.prefillState(candidates, r, f.cfg.Settings())
	want := router.PrefillState{
		PromptTokens: 2 * testBlock, PrefillWorkers: 1, QueueDepth: 2, TransferRate: 2 * testBlock,
		Prefill: router.PrefillPlace{Uncached: 2*testBlock - 1, Waiting: 700, Prompts: 3, Rate: 5, StepTokens: 77},
		Decode:  router.PrefillPlace{Uncached: 2 * testBlock, Waiting: 50, Prompts: 1, KVTokens: 10 * testBlock},
	}
	if share := got.Decode.KVShare; share == nil || *share != 0.5 {
		t.Errorf("%v of the pool in use, want 0.5", share)
	}
	got.Decode.KVShare = nil
	if got != want || likely.ID != pre.drt.ID() {
		t.Errorf("%+v of %s, want %+v", got, likely.Worker, want)
	}
}
