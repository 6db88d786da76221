package simulate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/kvindex"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/router"
)

// Events come in the order of their times, and those of one time in the order in which they
// were planned, also those that are planned meanwhile.
func TestAgendaKeepsTheOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var a agenda
	type key struct {
		at time.Duration
		n  int
	}
	var want, got []key
	n := 0
	add := func(from time.Duration) {
		k := key{from + time.Duration(r.IntN(20)), n}
		n++
		want = append(want, k)
		a.add(k.at, func() error { got = append(got, k); return nil })
	}
	for range 200 {
		add(0)
	}
	for {
		at, ok := a.next()
		if !ok {
			break
		}
		_ = a.take().do()
		if n < 500 {
			add(at + 1)
		}
	}
	slices.SortStableFunc(want, func(a, b key) int { return int(a.at - b.at) })
	if !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

// The router's index has what the caches of the engines hold, once their events have come.
func TestIndexFollowsCaches(t *testing.T) {
	p := h100()
	p.Limits.KVBlocks = 700
	s, err := newSimulation(Config{Profile: p, Prefill: 1, Decode: 2, Load: NewTrace(traceOf(t, 200), 1, 1)})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.play(t.Context()); err != nil {
		t.Fatal(err)
	}
	for last := s.now + s.EventDelay; ; {
		at, _ := s.agenda.next() // periodic events never end
		if at > last {
			break
		}
		e := s.agenda.take()
		s.now = e.at
		if err := e.do(); err != nil {
			t.Fatal(err)
		}
	}
	for _, w := range s.workers {
		want, err := w.engine.Engine.Resident(t.Context(), func() {})
		if err != nil {
			t.Fatal(err)
		}
		got := s.index.Snapshot(w.id, kvindex.Device)
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) || len(want) < 300 {
			t.Errorf("%s holds %d blocks, the index knows %d", w.name, len(want), len(got))
		}
		if w.engine.Engine.Stats().EvictedTotal == 0 {
			t.Errorf("%s has evicted nothing: this test shows little", w.name)
		}
	}
}

func TestGaps(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 1))
	var g gaps
	var all []float64
	for range 5000 {
		d := time.Duration(math.Exp(15 + 2*r.NormFloat64()))
		n := 1 + r.IntN(3)
		g.add(d, n)
		for range n {
			all = append(all, ms(d))
		}
	}
	want, got := quantiles(all), g.quantiles()
	for _, c := range [][2]float64{{got.P50, want.P50}, {got.P90, want.P90}, {got.P95, want.P95}, {got.P99, want.P99}} {
		if math.Abs(c[0]/c[1]-1) > 0.005 { // a bucket is within 0.4 %, and ranks are not interpolated
			t.Errorf("%v, want %v", c[0], c[1])
		}
	}
	if got.Count != want.Count || got.Max != want.Max || math.Abs(got.Mean/want.Mean-1) > 1e-9 {
		t.Errorf("%+v, want %+v", got, want)
	}
	g = gaps{}
	g.add(0, 1)
	if q := g.quantiles(); q.Max != 0 || q.P50 != 0 {
		t.Errorf("%+v", q)
	}
	if q := (&gaps{}).quantiles(); q != (Quantiles{}) {
		t.Errorf("%+v", q)
	}
}

// The rules of disaggregation get what they decide by.
func TestRulesDecide(t *testing.T) {
	rule := func(name string) router.PrefillLimits {
		l := DefaultDisagg()
		l.Conditional, _ = cluster.ParseConditional(name)
		return l
	}
	short := rule(cluster.ConditionalThreshold)
	short.MaxLocalTokens = 100
	queue := short
	queue.MaxQueueDepth = 2
	enforce := short
	enforce.Enforce = true
	burst := func(n, tokens int) *list {
		var l list
		for i := range n {
			l = append(l, prompt(time.Duration(i), uint64(i+1), tokens, 1))
		}
		return &l
	}
	for name, c := range map[string]struct {
		Config
		remote, local int
		why           string
	}{
		"short":                        {Config{Prefill: 1, Disagg: short, Load: burst(3, 100)}, 0, 3, "short"},
		"long":                         {Config{Prefill: 1, Disagg: short, Load: burst(3, 101)}, 3, 0, "long prompt"},
		"short, decode-first":          {Config{Prefill: 1, Disagg: short, Load: burst(3, 100), Strategy: protocol.StrategyDecodeFirst}, 0, 3, "short"},
		"long, decode-first":           {Config{Prefill: 1, Disagg: short, Load: burst(3, 101), Strategy: protocol.StrategyDecodeFirst}, 3, 0, "long prompt"},
		"queue full":                   {Config{Prefill: 1, Disagg: queue, Load: burst(6, 400)}, 3, 3, router.WhyQueueFull},
		"no prefill worker":            {Config{Disagg: short, Load: burst(3, 400)}, 0, 3, router.WhyNoPrefill},
		"one no prefill worker may do": {Config{Disagg: enforce, Load: burst(3, 100)}, 0, 3, "short"},
	} {
		c.Profile, c.Decode = plain(), 1
		r := play(t, c.Config)
		if r.Remote != c.remote || r.Local != c.local || r.Reasons[c.why] == 0 {
			t.Errorf("%s: %d remote, %d local: %v, want %d, %d and %q", name, r.Remote, r.Local, r.Reasons, c.remote, c.local, c.why)
		}
	}
	r := play(t, Config{Profile: plain(), Decode: 1, Disagg: enforce, Load: burst(3, 400)})
	if r.Refused[RefusedNotPrefilled] != 3 {
		t.Errorf("%v", r.Refused)
	}
}

// What the decode worker has in its cache is neither computed elsewhere nor sent.
func TestCachedAtTheDecodeWorker(t *testing.T) {
	for _, strategy := range []string{protocol.StrategyPrefillFirst, protocol.StrategyDecodeFirst} {
		limits := DefaultDisagg()
		limits.Conditional, _ = cluster.ParseConditional(cluster.ConditionalThreshold)
		limits.MaxLocalTokens = 50
		longer := prompt(2*time.Second, 1, 320, 1)
		longer.Parts = append(longer.Parts, prompt(0, 2, 80, 1).Parts...)
		// 321 tokens of which the first worker to decode keeps 20 blocks; the same again; and 80
		// tokens more, of which all blocks but the first 20 are sent.
		r := play(t, Config{Profile: plain(), Prefill: 1, Decode: 1, Strategy: strategy, Disagg: limits, Records: true, Load: &list{prompt(0, 1, 321, 1), prompt(time.Second, 1, 321, 1), longer}})
		if r.Remote != 2 || r.Local != 1 || !close9(r.MovedGB*1e6, 320+79) {
			t.Errorf("%s: %d remote, %d local, %v kB moved: %v; %+v", strategy, r.Remote, r.Local, r.MovedGB*1e6, r.Reasons, r.Records)
		}
		// The frontend knows the cache, and the engine does not ask where nothing is wanted.
		why := map[string]string{protocol.StrategyPrefillFirst: "cached", protocol.StrategyDecodeFirst: "short"}[strategy]
		if r.Records[1].Cached != 320 || r.Records[1].Prefill != "" || r.Records[1].Why != why {
			t.Errorf("%s: %+v", strategy, r.Records[1])
		}
	}
}

// A prompt counts as cached where it is computed, also if the decode worker has nothing of it.
func TestCachedAtThePrefillWorker(t *testing.T) {
	var same list
	for i := range 10 {
		same = append(same, prompt(time.Duration(i)*time.Second, 1, 321, 1))
	}
	r := play(t, Config{Profile: plain(), Prefill: 1, Decode: 3, Policy: router.Random, Disagg: always, Load: &same, Records: true})
	if !close9(r.CachedShare, 9*320./3210) || r.Remote < 2 || r.Local < 1 {
		t.Errorf("%v cached, %d remote, %d local", r.CachedShare, r.Remote, r.Local)
	}
	for i, rec := range r.Records[1:] {
		if rec.Cached != 320 {
			t.Errorf("request %d: %+v", i+1, rec)
		}
	}
}
