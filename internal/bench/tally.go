package bench

import (
	"math/rand/v2"
	"time"

	"github.com/dynctl/dynctl/internal/bench/stats"
)

// Limits of what a load keeps in memory.
const (
	SampleLimit      = 100_000 // values of one quantity
	phaseSampleLimit = 10_000  // the same for a phase
	pointLimit       = 4_000   // requests in a plot
	kindLimit        = 32      // kinds of failures, and of ends
)

// tally sums up records.
type tally struct {
	requests, ok, failed, interrupted, good int

	errors, finish map[string]int
	texts          map[string]string // an example of each kind of failure

	wantInput, wantOutput  int // tokens, of requests that succeeded
	input, output, cached  int
	counted, chunks        int
	ttft, itl, tpot, e2e   *stats.Sample // milliseconds
	inputs, outputs, delay *stats.Sample // tokens, tokens, milliseconds

	points []point // a random choice of requests
	random *rand.Rand
	last   time.Duration // end of the last answer
}

// point is a request in a plot: milliseconds over seconds.
type point struct{ at, ttft, itl float64 }

func newTally(limit int, seed uint64) *tally {
	sample := func() *stats.Sample { return stats.NewSample(limit, seed) }
	return &tally{
		errors: map[string]int{}, finish: map[string]int{}, texts: map[string]string{}, random: rand.New(rand.NewPCG(seed, 1)),
		ttft: sample(), itl: sample(), tpot: sample(), e2e: sample(), inputs: sample(), outputs: sample(), delay: sample(),
	}
}

func (t *tally) add(r Record, good bool) {
	t.requests++
	t.last = max(t.last, r.End)
	t.delay.Add(ms(r.Late()))
	if good {
		t.good++
	}
	switch r.Kind {
	case "":
	case KindInterrupted:
		t.interrupted++
		return
	default:
		t.failed++
		kind := count(t.errors, r.Kind)
		if t.texts[kind] == "" {
			t.texts[kind] = r.Error
		}
		return
	}
	t.ok++
	count(t.finish, r.Finish)
	t.wantInput, t.wantOutput = t.wantInput+r.WantInput, t.wantOutput+r.WantOutput
	t.input, t.output, t.cached, t.chunks = t.input+r.Input, t.output+r.Output, t.cached+r.Cached, t.chunks+r.Chunks
	if r.Counted {
		t.counted++
		t.inputs.Add(float64(r.Input))
	}
	t.outputs.Add(float64(r.Output))
	t.ttft.Add(ms(r.TTFT()))
	t.e2e.Add(ms(r.E2E()))
	if tpot, ok := r.TPOT(); ok {
		t.tpot.Add(ms(tpot))
	}
	for _, g := range r.gaps {
		for range g.tokens {
			t.itl.Add(ms(g.time) / float64(g.tokens))
		}
	}
	itl, _ := r.ITL()
	t.plot(point{r.Due.Seconds(), ms(r.TTFT()), ms(itl)})
}

// plot keeps a point, or not: each is as likely as any other.
func (t *tally) plot(p point) {
	if len(t.points) < pointLimit {
		t.points = append(t.points, p)
	} else if i := t.random.IntN(t.ok); i < pointLimit {
		t.points[i] = p
	}
}

// count counts a kind, and those beyond the limit together.
func count(kinds map[string]int, kind string) string {
	if kinds[kind] == 0 && len(kinds) >= kindLimit {
		kind = KindOther
	}
	kinds[kind]++
	return kind
}
