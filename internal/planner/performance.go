package planner

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Performance is how fast one worker is on its device. Its methods are pure. Tokens of
// prompts are those that are not in a prefix cache.
type Performance interface {
	// TTFT returns the seconds from the start of a prompt of isl tokens on an idle
	// prefill worker to its first token.
	TTFT(isl float64) float64
	// PrefillThroughput returns the prompt tokens a second of a busy prefill worker.
	PrefillThroughput(isl float64) float64
	// ITL returns the seconds of one decode step with kvTokens tokens of KV in use, by
	// sequences of context tokens each.
	ITL(kvTokens, context float64) float64
	// KVCapacity returns the tokens that a decode worker has KV blocks for.
	KVCapacity() float64
}

// Length is what makes a request long.
type Length struct {
	ISL    int `json:"isl"`    // tokens of the prompt
	Cached int `json:"cached"` // of these, found in a prefix cache
	OSL    int `json:"osl"`    // generated tokens
}

// uncached returns the prompt tokens that somebody must compute.
func (l Length) uncached() int { return max(l.ISL-l.Cached, 1) }

// Forecast is the load that a plan is evaluated under.
type Forecast struct {
	Rate    float64       // requests a second
	Lengths []Length      // a sample; each is as likely as the others
	Horizon time.Duration // how long the load lasts: a queue that grows, grows so long
	// PrefillSlowdown and DecodeSlowdown say by how much workers were slower than
	// Performance says; 1 as fast, 0 unknown.
	PrefillSlowdown, DecodeSlowdown float64
}

// Outcome is how a plan does under a forecast.
type Outcome struct {
	TTFT     time.Duration `json:"ttft_ns"` // at the target's percentile
	ITL      time.Duration `json:"itl_ns"`
	Miss     float64       `json:"miss"` // share of requests that miss TTFT or ITL
	MissTTFT float64       `json:"miss_ttft"`
	MissITL  float64       `json:"miss_itl"`
	// Loads are shares of the capacity that the load needs; from 1 on, queues grow.
	PrefillLoad float64 `json:"prefill_load"`
	DecodeLoad  float64 `json:"decode_load"`
}

// Evaluator predicts how a plan does. Implementations are deterministic. More workers of a role must
// not do worse, or the search for the cheapest plan misses it.
type Evaluator interface {
	Evaluate(plan Plan, f Forecast) (Outcome, error)
}

// lengthBins is how many lengths stand for all that are remembered.
const lengthBins = 48

// bins returns at most n lengths that stand for sample: each the middle of an equal share of it, ordered
// by the tokens to compute, and all stretched so that the means are those of sample.
func bins(sample []Length, n int) []Length {
	sorted := slices.Clone(sample)
	slices.SortFunc(sorted, func(a, b Length) int {
		return cmp.Or(cmp.Compare(a.uncached(), b.uncached()), cmp.Compare(a.OSL, b.OSL), cmp.Compare(a.ISL, b.ISL))
	})
	if len(sorted) <= n {
		return sorted
	}
	out := make([]Length, n)
	for i := range out {
		out[i] = sorted[(2*i+1)*len(sorted)/(2*n)]
	}
	stretch := func(of func(*Length) *int) {
		var want, have float64
		for i := range sorted {
			want += float64(*of(&sorted[i])) / float64(len(sorted))
		}
		for i := range out {
			have += float64(*of(&out[i])) / float64(n)
		}
		if have == 0 {
			return
		}
		for i := range out {
			v := of(&out[i])
			*v = int(math.Round(float64(*v) * want / have))
		}
	}
	stretch(func(l *Length) *int { return &l.ISL })
	stretch(func(l *Length) *int { return &l.Cached })
	stretch(func(l *Length) *int { return &l.OSL })
	return out
}
