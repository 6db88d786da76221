package simulate

import (
	"bytes"
	"math"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/bench/arrival"
	"github.com/dynctl/dynctl/internal/bench/workload"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/mooncake"
	"github.com/dynctl/dynctl/internal/profile"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/router"
)

// plain is a worker whose steps are easy to compute by hand: 10 ms, 1 ms for each answer and
// 0.1 ms for each token of a prompt. A token's KV takes 0.1 ms, and 1 ms at the end.
func plain() *profile.Profile {
	return &profile.Profile{
		Version: profile.Version, Devices: 1,
		Limits: profile.Limits{KVBlocks: 1000, BlockSize: 16, MaxSeqs: 16, MaxBatchTokens: 512, MaxContext: 8192, ITLTarget: 10},
		Step:   profile.Costs{Step: 10e-3, Decode: 1e-3, Token: 1e-4},
		KV:     profile.KV{BytesPerToken: 1000, Bandwidth: 1e7, Latency: 1e-3},
	}
}

// h100 is about an 8B model on an H100, see docs/routing.md.
func h100() *profile.Profile {
	return &profile.Profile{
		Version: profile.Version, Devices: 1,
		Limits:    profile.Limits{KVBlocks: 8000, BlockSize: 64, MaxSeqs: 256, MaxBatchTokens: 8192, MaxContext: 131072},
		Step:      profile.Costs{Step: 8e-3, Decode: 32.5e-6, DecodeContext: 0.049e-6, Token: 32.5e-6, ChunkContext: 1.06e-9},
		KV:        profile.KV{BytesPerToken: 128 << 10, Bandwidth: 40e9, Latency: 1e-3},
		Overheads: profile.Overheads{Frontend: 1e-3, Startup: 30, Flip: 5},
	}
}

// list is a load of given requests.
type list []Request

func (l *list) Next() (Request, bool) {
	if len(*l) == 0 {
		return Request{}, false
	}
	r := (*l)[0]
	*l = (*l)[1:]
	return r, true
}

// prompt is a request whose prompt nobody shares.
func prompt(at time.Duration, text uint64, input, output int) Request {
	return Request{At: at, Parts: []workload.Part{{Text: text, Tokens: input}}, Output: output}
}

func poisson(rate float64, input, output workload.Lengths, n int, seed uint64) *Open {
	return &Open{From: workload.Synthetic{Input: input, Output: output, Turns: 1, Seed: seed}, Schedule: arrival.New(arrival.Constant(rate), true, seed), Count: n}
}

func every(d time.Duration) *arrival.Schedule {
	return arrival.New(arrival.Constant(1/d.Seconds()), false, 0)
}

// always has all prompts computed by prefill workers.
var always = router.PrefillLimits{Conditional: cluster.Conditional{Rule: cluster.ConditionalOff}}

func play(t *testing.T, c Config) *Result {
	t.Helper()
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for _, n := range r.Refused {
		refused += n
	}
	if r.Succeeded+refused != r.Requests || r.Remote+r.Local != r.Succeeded || r.TTFT.Count != r.Succeeded || r.ITL.Count != r.Output-r.Succeeded {
		t.Errorf("%d requests, %d succeeded, %d refused, %d prefilled remotely and %d locally, %d first tokens, %d gaps of %d tokens",
			r.Requests, r.Succeeded, refused, r.Remote, r.Local, r.TTFT.Count, r.ITL.Count, r.Output)
	}
	if c.Records && len(r.Records) != r.Requests {
		t.Errorf("%d records of %d requests", len(r.Records), r.Requests)
	}
	return r
}

func close9(got, want float64) bool { return math.Abs(got-want) < 1e-9*max(1, math.Abs(want)) }

// Two requests on one worker: the second one's prompt is computed beside the first one's
// answer.
func TestTwoRequestsByHand(t *testing.T) {
	r := play(t, Config{Profile: plain(), Decode: 1, Records: true, Load: &list{prompt(0, 1, 100, 3), prompt(5*time.Millisecond, 2, 50, 2)}, TTFT: 25 * time.Millisecond, ITL: time.Second})
	// 0 to 20: prompt of 100. 20 to 36: a token, and a prompt of 50. 36 to 48: two tokens.
	want := []Record{
		{AtS: 0.005, Input: 50, Output: 2, TTFT: 31, TPOT: 12, E2E: 43, Queued: 15, Decode: "worker-1", Why: "short"},
		{AtS: 0, Input: 100, Output: 3, TTFT: 20, TPOT: 14, E2E: 48, Decode: "worker-1", Why: "short"},
	}
	for _, w := range want {
		found := false
		for _, g := range r.Records {
			found = found || g.Input == w.Input && g.Output == w.Output && close9(g.AtS, w.AtS) && close9(g.TTFT, w.TTFT) && close9(g.TPOT, w.TPOT) && close9(g.E2E, w.E2E) && close9(g.Queued, w.Queued) && g.Decode == w.Decode
		}
		if !found {
			t.Errorf("got %+v, want %+v", r.Records, w)
		}
	}
	if r.Steps != 3 || !close9(r.SpanS, 0.048) || !close9(r.DeviceHours, 0.048/3600) || !close9(r.DecodeBusy, 1) || r.Goodput.Good != 1 {
		t.Errorf("%+v", r)
	}
}

// A prompt that a prefill worker computes, in each of the ways that KV can take.
func TestOneRemotePromptByHand(t *testing.T) {
	small := plain()
	small.Limits.MaxBatchTokens = 32
	small.Overheads.Frontend, small.Overheads.Delivery = 2e-3, 0.5e-3
	// Chunks of 32 take 13.2 ms. The decode worker computes the last token in 11 ms.
	for name, c := range map[string]struct {
		profile  *profile.Profile
		strategy string
		seq      bool
		want     float64
	}{
		// 64 tokens: 10 + 6.4 ms, 6.4 ms on the link, 1 ms of latency.
		"prefill-first": {plain(), protocol.StrategyPrefillFirst, false, 16.4 + 6.4 + 1 + 11},
		"sequential":    {plain(), protocol.StrategyPrefillFirst, true, 16.4 + 6.4 + 1 + 11},
		"decode-first":  {plain(), protocol.StrategyDecodeFirst, false, 16.4 + 6.4 + 1 + 11},
		// Two chunks: the first one moves while the second is computed.
		"overlapped":               {small, protocol.StrategyPrefillFirst, false, 2 + 26.4 + 3.2 + 1 + 11 + 0.5},
		"overlapped, decode-first": {small, protocol.StrategyDecodeFirst, false, 2 + 26.4 + 3.2 + 1 + 11 + 0.5},
		"chunks, not overlapped":   {small, protocol.StrategyPrefillFirst, true, 2 + 26.4 + 6.4 + 1 + 11 + 0.5},
	} {
		r := play(t, Config{Profile: c.profile, Prefill: 1, Decode: 1, Strategy: c.strategy, Sequential: c.seq, Disagg: always, Records: true, Load: &list{prompt(0, 1, 65, 2)}})
		got := r.Records[0]
		if !close9(got.TTFT, c.want) || got.Prefill != "worker-1" || got.Decode != "worker-2" || r.Remote != 1 || !close9(r.MovedGB, 64e3/1e9) {
			t.Errorf("%s: %+v, want a TTFT of %v ms; %+v", name, got, c.want, r)
		}
	}
}

// Transfers share the links: two prompts of two prefill workers that end at once go to one
// decode worker, and each gets half of its link.
func TestTransfersShareLinks(t *testing.T) {
	r := play(t, Config{Profile: plain(), Prefill: 2, Decode: 1, Disagg: always, Records: true, Load: &list{prompt(0, 1, 65, 1), prompt(0, 2, 65, 1)}})
	for i, rec := range r.Records {
		// 64 tokens of KV take 12.8 ms at half the bandwidth. The last tokens are computed one
		// after the other: a step begins as soon as there is something to compute.
		if want := 16.4 + 12.8 + 1 + 11*float64(i+1); !close9(rec.TTFT, want) {
			t.Errorf("TTFT %v ms, want %v", rec.TTFT, want)
		}
	}
	if r.Records[0].Prefill == r.Records[1].Prefill {
		t.Errorf("both prompts at %s", r.Records[0].Prefill)
	}
}

// With one sequence at a time and answers of one token, a worker is a queue of fixed service
// time: M/D/1. Waits are those of Lindley's recursion, exactly, and their mean that of
// Pollaczek and Khinchine, within four standard errors, taken from the means of 50 parts.
func TestQueueOfFixedService(t *testing.T) {
	p := plain()
	p.Limits.MaxSeqs = 1
	const n, input = 20000, 400
	service := 50 * time.Millisecond
	rate := 0.7 / service.Seconds()
	r := play(t, Config{Profile: p, Decode: 1, Records: true, MaxQueued: 1 << 20, Load: poisson(rate, workload.Fixed(input), workload.Fixed(1), n, 7)})
	times := arrival.New(arrival.Constant(rate), true, 7)
	free, sum := time.Duration(0), 0.0
	parts := make([]float64, 50)
	for i := range n {
		at, _ := times.Next()
		free = max(free, at) + service
		if got := r.Records[i].TTFT; !close9(got, ms(free-at)) {
			t.Fatalf("request %d: TTFT %v ms, want %v", i, got, ms(free-at))
		}
		wait := (free - at - service).Seconds()
		sum += wait
		parts[i*50/n] += wait / (n / 50)
	}
	mean, deviation := sum/n, 0.0
	for _, v := range parts {
		deviation += (v - mean) * (v - mean) / 49
	}
	want := 0.7 * service.Seconds() / (2 * 0.3)
	if bound := 4 * math.Sqrt(deviation/50); math.Abs(mean-want) > bound || bound > want/5 {
		t.Errorf("mean wait %v s, want %v within %v", mean, want, bound)
	}
}

// Two transfers that leave one prefill worker at once share its link, also to different
// decode workers.
func TestTransfersShareTheLinkOut(t *testing.T) {
	load := &list{prompt(0, 1, 65, 1), prompt(time.Millisecond, 2, 65, 1), prompt(2*time.Millisecond, 3, 65, 1)}
	r := play(t, Config{Profile: plain(), Prefill: 1, Decode: 3, Policy: router.LeastLoaded, Disagg: always, Records: true, Load: load})
	// The second and the third prompt are computed together, from 16.4 to 39.2 ms.
	for i, rec := range r.Records[1:] {
		if want := 39.2 + 12.8 + 1 + 11 - float64(i+1); !close9(rec.TTFT, want) {
			t.Errorf("TTFT %v ms, want %v: %+v", rec.TTFT, want, r.Records)
		}
	}
}

// A prefill worker holds two prompts of the prefill queue: the third waits until the KV of the
// first has arrived.
func TestPrefillQueueByHand(t *testing.T) {
	load := &list{prompt(0, 1, 65, 1), prompt(time.Millisecond, 2, 65, 1), prompt(2*time.Millisecond, 3, 65, 1)}
	r := play(t, Config{Profile: plain(), Prefill: 1, Decode: 3, Policy: router.LeastLoaded, Strategy: protocol.StrategyDecodeFirst, Disagg: always, Records: true, Load: load})
	// Steps end at 16.4, 32.8 and 49.2 ms; the first KV has arrived at 23.8 ms.
	for i, rec := range r.Records {
		if want := 16.4*float64(i+1) + 6.4 + 1 + 11 - float64(i); !close9(rec.TTFT, want) {
			t.Errorf("TTFT %v ms, want %v: %+v", rec.TTFT, want, r.Records)
		}
	}
}

func traceOf(t *testing.T, n int) []mooncake.Request {
	t.Helper()
	// A trace like those of Mooncake: conversations of several requests, one system prompt.
	r := rand.New(rand.NewPCG(5, 6))
	type talk struct {
		blocks []uint64
		tokens int
	}
	var talks []talk
	var out []mooncake.Request
	next := uint64(1)
	at := time.Duration(0)
	for range n {
		at += time.Duration(r.ExpFloat64() * float64(120*time.Millisecond))
		k := r.IntN(len(talks) + 1)
		if k == len(talks) || len(talks) == 0 {
			talks = append(talks, talk{[]uint64{0}, 512})
			k = len(talks) - 1
		}
		c := &talks[k]
		c.tokens += 100 + r.IntN(2000)
		for len(c.blocks)*512 < c.tokens {
			c.blocks = append(c.blocks, next)
			next++
		}
		q := mooncake.Request{At: at, Input: c.tokens, Output: 1 + r.IntN(200), Blocks: append([]uint64(nil), c.blocks...)}
		out = append(out, q)
		if c.tokens += q.Output; c.tokens > 20000 {
			talks = append(talks[:k], talks[k+1:]...)
		}
	}
	return out
}

func bytesOf(t *testing.T, r *Result) string {
	var b bytes.Buffer
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// The same simulation gives the same bytes, in all ways that prompts can take; another seed
// gives others.
func TestSameSeedSameBytes(t *testing.T) {
	trace := traceOf(t, 400)
	for _, c := range []Config{
		{Decode: 3}, {Prefill: 2, Decode: 2}, {Prefill: 2, Decode: 2, Sequential: true}, {Prefill: 2, Decode: 2, Strategy: protocol.StrategyDecodeFirst}, {Decode: 3, Policy: router.Random},
	} {
		var last string
		for i := range 3 {
			c.Profile, c.Records, c.Load = h100(), true, NewTrace(trace, 1, 2)
			if i == 2 {
				c.Load = NewTrace(trace, 1.01, 2)
			}
			got := bytesOf(t, play(t, c))
			if same := got == last; i > 0 && same != (i == 1) {
				t.Errorf("%+v: play %d gives the same: %t", c, i, same)
			}
			last = got
		}
	}
}

// Answers come back in later prompts of a trace, and are found in caches there.
func TestTraceContinuesAnswers(t *testing.T) {
	load := NewTrace([]mooncake.Request{
		{Input: 512, Output: 512, Blocks: []uint64{7}},
		{At: time.Hour, Input: 1100, Output: 1, Blocks: []uint64{7, 8, 9}},
	}, 2, 2)
	var parts [][]workload.Part
	for {
		r, ok := load.Next()
		if !ok {
			break
		}
		parts = append(parts, r.Parts, r.Answer)
	}
	if len(parts) != 8 || len(parts[1]) != 1 || parts[1][0] != parts[2][1] || parts[3] != nil || parts[0][0].Text == parts[4][0].Text || load.Span() != time.Hour {
		t.Errorf("%v, %s", parts, load.Span())
	}
	// A prompt that is too short for the answer does not continue it.
	if r, _ := NewTrace([]mooncake.Request{{Input: 512, Output: 600, Blocks: []uint64{7}}, {Input: 1100, Output: 1, Blocks: []uint64{7, 8, 9}}}, 1, 1).Next(); r.Answer != nil {
		t.Errorf("%v", r.Answer)
	}
	r := play(t, Config{Profile: plain(), Decode: 1, Records: true, Load: NewTrace(load.requests, 1, 1)})
	if got := r.Records[1].Cached; got != 1008 { // the last token of the answer has no KV, so its block is not full
		t.Errorf("%d tokens cached", got)
	}
}

// Conversations come one turn after the other, each with all that was said before.
func TestConversations(t *testing.T) {
	source := workload.Synthetic{Input: workload.Fixed(160), Output: workload.Fixed(32), Turns: 3, Seed: 1}
	r := play(t, Config{Profile: plain(), Decode: 1, Records: true, Load: &Open{From: source, Schedule: arrival.New(arrival.Constant(1), false, 1), Count: 2}})
	if r.Requests != 6 || r.Succeeded != 6 || r.Input != 2*(160+352+544) {
		t.Fatalf("%+v", r)
	}
	cached := map[int]int{}
	for _, rec := range r.Records {
		cached[rec.Input] = rec.Cached
	}
	if cached[352] != 176 || cached[544] != 368 {
		t.Errorf("cached tokens by prompt: %v", cached)
	}
}

// A policy that knows the caches reuses more than one that draws, and answers sooner.
func TestPoliciesOnSharedPrefixes(t *testing.T) {
	p := h100()
	p.Limits.KVBlocks = 1500
	results := map[string]*Result{}
	for _, policy := range []string{router.KV, router.Random, router.RoundRobin} {
		source := workload.Synthetic{Input: workload.Fixed(8000), Output: workload.Fixed(50), Share: 0.9, Prefixes: 24, Turns: 1, Seed: 3}
		results[policy] = play(t, Config{Profile: p, Decode: 4, Policy: policy, Load: &Open{From: source, Schedule: arrival.New(arrival.Constant(10), true, 3), Count: 1500}})
	}
	kv, random := results[router.KV], results[router.Random]
	if kv.CachedShare < random.CachedShare+0.2 || kv.TTFT.P90 > random.TTFT.P90/1.5 {
		t.Errorf("kv reuses %v with a TTFT p90 of %v ms, random %v with %v", kv.CachedShare, kv.TTFT.P90, random.CachedShare, random.TTFT.P90)
	}
}

// Prefill workers keep long prompts away from answers: the time between tokens gets shorter,
// with as many devices.
func TestDisaggregationShortensGaps(t *testing.T) {
	load := func() Source {
		return poisson(5, workload.Fixed(3000), workload.Fixed(150), 1200, 4)
	}
	apart := play(t, Config{Profile: h100(), Prefill: 1, Decode: 1, Disagg: always, Load: load()})
	together := play(t, Config{Profile: h100(), Decode: 2, Load: load()})
	if apart.ITL.P99 > together.ITL.P99/2 || apart.Remote != apart.Succeeded || together.Remote != 0 {
		t.Errorf("apart: ITL p99 %v ms, %d of %d remote; together: %v ms", apart.ITL.P99, apart.Remote, apart.Succeeded, together.ITL.P99)
	}
}

// The costs of the workers follow from what their engines report of their steps.
func TestCostsFollowFromReports(t *testing.T) {
	want := h100().Step
	var samples []profile.Sample
	r := play(t, Config{Profile: h100(), Prefill: 1, Decode: 1, Load: NewTrace(traceOf(t, 150), 2, 1), Observe: func(worker string, r engine.StepReport) {
		if worker == "worker-2" {
			samples = append(samples, Sample(r))
		}
	}})
	got, q, err := profile.Fit(samples)
	if err != nil || len(samples) < 500 || len(samples) >= r.Steps {
		t.Fatalf("%d samples of %d steps, %v", len(samples), r.Steps, err)
	}
	for name, c := range map[string][2]float64{
		"step": {got.Step, want.Step}, "decode": {got.Decode, want.Decode}, "decode context": {got.DecodeContext, want.DecodeContext}, "token": {got.Token, want.Token}, "chunk context": {got.ChunkContext, want.ChunkContext},
	} {
		if math.Abs(c[0]/c[1]-1) > 1e-3 { // steps take whole nanoseconds
			t.Errorf("%s: %v, want %v; %+v", name, c[0], c[1], q)
		}
	}
}

func TestRefusals(t *testing.T) {
	p := plain()
	p.Limits.MaxSeqs, p.Limits.MaxContext = 1, 1000
	var many list
	for i := range 40 {
		many = append(many, prompt(time.Duration(i), uint64(i), 100, 100))
	}
	r := play(t, Config{Profile: p, Decode: 1, MaxQueued: 10, Load: &many})
	if r.Refused[RefusedQueueFull] < 20 {
		t.Errorf("%v", r.Refused)
	}
	if r := play(t, Config{Profile: p, Decode: 1, Load: &list{prompt(0, 1, 990, 11), prompt(0, 1, 990, 10)}}); r.Refused[RefusedTooLong] != 1 || r.Succeeded != 1 {
		t.Errorf("%v", r.Refused)
	}
	busy := play(t, Config{Profile: plain(), Decode: 1, Busy: router.BusyLimits{PrefillTokens: 99}, Load: &list{prompt(0, 1, 100, 1), prompt(0, 2, 100, 1)}})
	if busy.Refused[RefusedBusy] != 1 {
		t.Errorf("%v", busy.Refused)
	}
}

// The router counts what requests use until they end: their prompts and what they generate.
func TestRequestsCountUntilTheyEnd(t *testing.T) {
	limits := router.BusyLimits{KVShare: 0.02} // of 1000 blocks
	var apart list
	for i := range 5 {
		apart = append(apart, prompt(time.Duration(i)*time.Second, uint64(i), 160, 1))
	}
	if r := play(t, Config{Profile: plain(), Decode: 1, Busy: limits, StatusPeriod: time.Hour, Load: &apart}); r.Succeeded != 5 {
		t.Errorf("one after the other: %v", r.Refused)
	}
	for at, refused := range map[time.Duration]int{time.Second: 0, 4 * time.Second: 1} {
		// 11 ms for each token: 320 of them after 3.5 s.
		r := play(t, Config{Profile: plain(), Decode: 1, Busy: limits, StatusPeriod: time.Hour, Load: &list{prompt(0, 1, 16, 400), prompt(at, 2, 16, 1)}})
		if r.Refused[RefusedBusy] != refused {
			t.Errorf("after %s: %v", at, r.Refused)
		}
	}
	// What a worker says counts, too.
	r := play(t, Config{Profile: plain(), Decode: 1, Busy: limits, Strategy: protocol.StrategyDecodeFirst, Load: &list{prompt(0, 1, 319, 100), prompt(1500*time.Millisecond, 1, 319, 1)}})
	if r.Refused[RefusedBusy] != 1 {
		t.Errorf("%v", r.Refused)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for name, c := range map[string]Config{
		"no profile": {Decode: 1, Load: &list{}}, "no load": {Profile: plain(), Decode: 1}, "no worker": {Profile: plain(), Load: &list{}},
		"policy": {Profile: plain(), Load: &list{}, Decode: 1, Policy: "best"}, "direct": {Profile: plain(), Load: &list{}, Decode: 1, Policy: router.Direct},
		"strategy": {Profile: plain(), Load: &list{}, Decode: 1, Strategy: "both"}, "time": {Profile: plain(), Load: &list{}, Decode: 1, Tick: -1},
		"count": {Profile: plain(), Load: &list{}, Decode: 2000}, "profile": {Profile: &profile.Profile{}, Load: &list{}, Decode: 1},
	} {
		if _, err := Run(t.Context(), c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// BenchmarkTrace plays a trace given by MOONCAKE.
func BenchmarkTrace(b *testing.B) {
	path := os.Getenv("MOONCAKE")
	if path == "" {
		b.Skip("set MOONCAKE to the path of a trace")
	}
	f, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	trace, err := mooncake.Read(f)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		begin := time.Now()
		r, err := Run(b.Context(), Config{Profile: h100(), Prefill: 30, Decode: 70, Load: NewTrace(trace, 1, 1)})
		if err != nil {
			b.Fatal(err)
		}
		took := time.Since(begin).Seconds()
		b.ReportMetric(float64(r.Requests)/took, "requests/s")
		b.ReportMetric(float64(r.Steps)/took, "steps/s")
		b.ReportMetric(r.SpanS/took, "times_real")
	}
}
