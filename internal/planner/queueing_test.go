package planner

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"
)

// Values come from scripts/planner/golden.py, which sums fractions.
func TestErlangC(t *testing.T) {
	data, err := os.ReadFile("testdata/erlang.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Servers int     `json:"servers"`
		Load    float64 `json:"load"`
		Wait    float64 `json:"wait"`
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	for _, tc := range cases {
		if got := erlangC(tc.Servers, tc.Load); math.Abs(got-tc.Wait) > 1e-12 {
			t.Errorf("%d servers, %v erlangs: %v, want %v", tc.Servers, tc.Load, got, tc.Wait)
		}
	}
	if len(cases) < 8 {
		t.Errorf("%d cases", len(cases))
	}
}

// A queue with one server and prompts of one length waits half as long as one with exponential times:
// Pollaczek and Khinchine's mean is exact for one server.
func TestMeanWaitOfOneServer(t *testing.T) {
	q := promptQueue{workers: 1}
	q.add(1, 0.06, 0)
	q.settle(Forecast{Rate: 10}, 1)
	want := 0.6 * 0.06 / (2 * (1 - 0.6))
	if mean := q.waiting / q.pace; math.Abs(mean-want) > 1e-12 || math.Abs(q.load-0.6) > 1e-12 {
		t.Errorf("mean wait %v, want %v; load %v", mean, want, q.load)
	}
}

func evaluate(t *testing.T, plan Plan, rate float64, sample []Length) Outcome {
	t.Helper()
	return evaluateBy(t, Queueing{Performance: machine{}, Target: target()}, plan, rate, sample)
}

func evaluateBy(t *testing.T, q Queueing, plan Plan, rate float64, sample []Length) Outcome {
	t.Helper()
	o, err := q.Evaluate(plan, Forecast{Rate: rate, Lengths: sample, Horizon: 3 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []float64{o.Miss, o.MissTTFT, o.MissITL} {
		if !(v >= 0 && v <= 1) {
			t.Fatalf("%v at %v: %+v", plan, rate, o)
		}
	}
	if o.TTFT < 0 || o.ITL < 0 || math.IsNaN(o.DecodeLoad) || math.IsInf(o.DecodeLoad, 0) {
		t.Fatalf("%v at %v: %+v", plan, rate, o)
	}
	return o
}

// By hand: 10 requests/s of 3,000 tokens are 30,000 of 50,000. Of KV, a sequence of 300 tokens holds
// 3,150 on average: k = 10 * 300 * 3,150 * (0.005 + 0.005 k / 150,000), so that k = 68,978 and ITL = 7.3 ms.
func TestOutcomeByHand(t *testing.T) {
	o := evaluate(t, Plan{Prefill: 1, Decode: 1}, 10, lengths(1, 3000, 300))
	if math.Abs(o.PrefillLoad-0.6) > 1e-9 {
		t.Errorf("prefill load %v", o.PrefillLoad)
	}
	d := Queueing{Performance: machine{}, Target: target()}.decode(Plan{Prefill: 1, Decode: 1}, Forecast{Rate: 10}, lengths(1, 3000, 300), []float64{0})
	k := 10 * 300 * 3150 * 0.005 / (1 - 10*300*3150*0.005/150_000)
	if want := 0.005 + 0.005*k/150_000; math.Abs(d.mean-want) > 1e-6 {
		t.Errorf("ITL %v, want %v", d.mean, want)
	}
	if o.DecodeLoad >= 1 || o.Miss > 0.01 || o.TTFT < 70*time.Millisecond || o.ITL < 7*time.Millisecond {
		t.Errorf("%+v", o)
	}
}

// The load is the share of the highest rate at which KV use finds an end, also where decode workers
// compute prompts: at one, and not before, everything misses.
func TestDecodeLoadIsAShareOfTheHighestRate(t *testing.T) {
	for _, plan := range []Plan{{Prefill: 9, Decode: 1}, {Decode: 2}, {Prefill: 9, Decode: 2, MaxLocalPrefill: 5000}} {
		sample := lengths(1, 3000, 300)
		unit := evaluate(t, plan, 1, sample).DecodeLoad
		if unit <= 0 || unit > 0.5 {
			t.Fatalf("%v: load %v of one request a second", plan, unit)
		}
		for _, share := range []float64{0.01, 0.3, 0.99, 1.01} {
			o := evaluate(t, plan, share/unit, sample)
			if math.Abs(o.DecodeLoad-share) > 1e-9 || (o.Miss == 1) != (share > 1) && share > 0.99 {
				t.Errorf("%v at %v of the highest rate: %+v", plan, share, o)
			}
		}
	}
}

// linear is a worker whose steps take time for themselves, for each sequence and for each token of KV.
type linear struct{ step, sequence, kv, token, capacity float64 }

func (l linear) TTFT(isl float64) float64              { return l.step + l.token*isl }
func (l linear) PrefillThroughput(isl float64) float64 { return isl / l.TTFT(isl) }
func (l linear) KVCapacity() float64                   { return l.capacity }
func (l linear) ITL(kv, context float64) float64 {
	kv = max(kv, context)
	return l.step + l.sequence*kv/context + l.kv*kv
}

// Requests one after the other are the slowest way to serve them. So whatever steps cost, the load is not more than their
// rate times the time that one takes alone, also where only a small part of the KV is ever in use.
func TestDecodeLoadIsAtMostThatOfOneAfterTheOther(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 11))
	cost := func() float64 { // some are found to be nothing
		if r.IntN(2) == 0 {
			return 0
		}
		return math.Pow(10, -6+3*r.Float64())
	}
	for range 2000 {
		l := linear{cost(), cost(), cost() / 50, cost() / 50, math.Pow(10, 3+4*r.Float64())}
		if l.step+l.sequence+l.kv == 0 {
			l.kv = 1e-5
		}
		isl, osl := 1+r.IntN(300), 1+r.IntN(60)
		context := float64(isl) + float64(osl)/2
		alone := l.TTFT(float64(isl)) + float64(osl)*l.ITL(0, context)
		rate := 0.3 / alone
		o, err := Queueing{Performance: l, Target: target()}.Evaluate(Plan{Decode: 1}, Forecast{Rate: rate, Lengths: lengths(1, isl, osl), Horizon: time.Minute})
		if err != nil || !(o.DecodeLoad > 0 && o.DecodeLoad <= 0.3*(1+1e-9)) || o.ITL < seconds(l.ITL(0, context))-1 {
			t.Fatalf("%+v, %d and %d tokens, %v requests/s: %+v %v", l, isl, osl, rate, o, err)
		}
	}
}

// More workers never do worse, and more load never better.
// A worker that runs few sequences at a time is full before its KV is: of n sequences, each gives a token a step.
func TestMaxSeqsBoundTheRate(t *testing.T) {
	sample := []Length{{ISL: 1, OSL: 100}}
	for _, n := range []int{1, 4} {
		q := Queueing{Performance: machine{}, Target: target(), MaxSeqs: n}
		context := 1 + 100/2.0
		step := machine{}.ITL(float64(n)*context, context)
		highest := float64(n) / (100*step + float64(n)*(machine{}.TTFT(1)))
		for _, share := range []float64{0.5, 0.9} {
			if got := evaluateBy(t, q, Plan{Prefill: 1, Decode: 1}, share*highest, sample).DecodeLoad; got < 0.9*share || got > 1.1*share {
				t.Errorf("%d sequences, %v of the highest rate: load %v", n, share, got)
			}
		}
		q.MaxSeqs = 0
		if got := evaluateBy(t, q, Plan{Prefill: 1, Decode: 1}, 0.9*highest, sample).DecodeLoad; got > 0.5 {
			t.Errorf("without a bound: load %v", got)
		}
	}
}

func TestOutcomesAreMonotonic(t *testing.T) {
	monotonic(t, Queueing{Performance: machine{}, Target: target()}, 1e-6)
	// Prompts go where they cause the least delay, which is not quite where the fewest requests miss.
	monotonic(t, Queueing{Performance: machine{}, Target: target(), LeastDelay: true}, 0.005)
}

func monotonic(t *testing.T, q Queueing, but float64) {
	t.Helper()
	evaluate := func(t *testing.T, plan Plan, rate float64, sample []Length) Outcome {
		t.Helper()
		return evaluateBy(t, q, plan, rate, sample)
	}
	mixed := []Length{{ISL: 200, OSL: 20}, {ISL: 3000, OSL: 300}, {ISL: 9000, OSL: 100}, {ISL: 1000, Cached: 900, OSL: 700}}
	for _, sample := range [][]Length{lengths(1, 3000, 300), mixed} {
		for _, plan := range []Plan{{1, 1, 0}, {2, 1, 0}, {1, 3, 500}, {0, 2, 0}, {3, 4, 0}} {
			last := 0.0
			for rate := 0.5; rate < 80; rate += 1.5 {
				o := evaluate(t, plan, rate, sample)
				if o.Miss < last-but {
					t.Errorf("%v at %v requests/s: %v misses after %v", plan, rate, o.Miss, last)
				}
				last = o.Miss
				for _, more := range []Plan{{plan.Prefill + 1, plan.Decode, plan.MaxLocalPrefill}, {plan.Prefill, plan.Decode + 1, plan.MaxLocalPrefill}} {
					if plan.Aggregated() && !more.Aggregated() {
						continue // another way to serve
					}
					if m := evaluate(t, more, rate, sample); m.Miss > o.Miss+but {
						t.Errorf("%v at %v requests/s: %v misses with %v, %v without", plan, rate, m.Miss, more, o.Miss)
					}
				}
			}
		}
	}
}

// Averages hide what misses: the same means, and one request of twenty ten times as long.
func TestDistributionMatters(t *testing.T) {
	even := lengths(20, 2900, 200)
	tail := append(lengths(19, 2000, 200), Length{ISL: 20000, OSL: 200})
	a, b := evaluate(t, Plan{Prefill: 1, Decode: 1}, 10, even), evaluate(t, Plan{Prefill: 1, Decode: 1}, 10, tail)
	if math.Abs(a.PrefillLoad-b.PrefillLoad) > 1e-9 || !target().holds(a) || target().holds(b) {
		t.Errorf("even: %+v; with a tail: %+v", a, b)
	}
}

// Of two prompts, the long one is computed where it holds up least; of many, decode workers compute those that the
// prefill workers have no time for. Where one more would be is then the same.
func TestLeastDelay(t *testing.T) {
	q := Queueing{Performance: machine{}, Target: target(), LeastDelay: true}
	sample := make([]Length, 40)
	for i := range sample {
		sample[i] = Length{ISL: 1000 + 100*i, OSL: 100}
	}
	share := func(plan Plan, rate float64) float64 {
		_, local, remote := q.settle(plan, Forecast{Rate: rate, Lengths: sample, Horizon: time.Minute}, sample)
		if math.Abs(local.share+remote.share-1) > 1e-9 {
			t.Fatalf("%v at %v: %v here and %v there", plan, rate, local.share, remote.share)
		}
		if local.count > 0 && remote.count > 0 && slices.Max(local.occupancy) > 3*slices.Min(remote.occupancy)+0.1 {
			t.Errorf("%v at %v: a longer prompt is computed here than there", plan, rate)
		}
		return local.share
	}
	few, many := share(Plan{Prefill: 1, Decode: 4}, 30), share(Plan{Prefill: 3, Decode: 4}, 30)
	if few < 0.2 || few > 0.9 || many >= few {
		t.Errorf("decode workers compute %.2f of the prompts beside one prefill worker, %.2f beside three", few, many)
	}
	if at := share(Plan{Decode: 4}, 10); at != 1 {
		t.Errorf("aggregated: %v", at)
	}
	f := Forecast{Rate: 30, Horizon: time.Minute}
	d, local, remote := q.settle(Plan{Prefill: 1, Decode: 4}, f, sample)
	first := Length{ISL: 1000 + 100*int(few*40)}
	shorter, longer := first, first
	shorter.ISL, longer.ISL = first.ISL-500, first.ISL+500
	if !q.laterThere(f, shorter, d, local, remote) || q.laterThere(f, longer, d, local, remote) {
		t.Errorf("%.2f of the prompts are computed here: a shorter one would be later there %v, a longer one %v", few,
			q.laterThere(f, shorter, d, local, remote), q.laterThere(f, longer, d, local, remote))
	}
}

func TestEvaluateEdges(t *testing.T) {
	q := Queueing{Performance: machine{}, Target: target()}
	if o, err := q.Evaluate(Plan{}, Forecast{}); err != nil || o != (Outcome{}) {
		t.Errorf("no load: %+v, %v", o, err)
	}
	if _, err := q.Evaluate(Plan{Decode: 1}, Forecast{Rate: 1}); err == nil {
		t.Error("no lengths: no error")
	}
	if _, err := q.Evaluate(Plan{Prefill: 1}, Forecast{Rate: 1, Lengths: lengths(1, 1, 1)}); err == nil {
		t.Error("no decode workers: no error")
	}
	if o := evaluate(t, Plan{Decode: 1}, 1000, lengths(1, 3000, 300)); o.Miss != 1 || o.DecodeLoad < 1 {
		t.Errorf("far too much: %+v", o)
	}
	slow := Forecast{Rate: 10, Lengths: lengths(1, 3000, 300), Horizon: time.Minute, PrefillSlowdown: 2, DecodeSlowdown: 2}
	if o, err := q.Evaluate(Plan{Prefill: 1, Decode: 1}, slow); err != nil || o.PrefillLoad != 1.2 || o.MissITL < 0.9 {
		t.Errorf("slow workers: %+v, %v", o, err)
	}
}

func TestBins(t *testing.T) {
	var sample []Length
	for i := range 1000 {
		sample = append(sample, Length{ISL: 10 + i*i/100, OSL: 1 + (i*7919)%400})
	}
	before := slices.Clone(sample)
	got := bins(sample, 40)
	if !slices.Equal(sample, before) {
		t.Error("bins changed the sample")
	}
	mean := func(ls []Length) (isl, osl float64) {
		for _, l := range ls {
			isl += float64(l.ISL) / float64(len(ls))
			osl += float64(l.OSL) / float64(len(ls))
		}
		return isl, osl
	}
	wantISL, wantOSL := mean(sample)
	gotISL, gotOSL := mean(got)
	if len(got) != 40 || math.Abs(gotISL-wantISL) > 1 || math.Abs(gotOSL-wantOSL) > 1 {
		t.Errorf("%d bins with means %v and %v, want %v and %v", len(got), gotISL, gotOSL, wantISL, wantOSL)
	}
}
