package kerneltest

import (
	"fmt"
	"math"

	"github.com/dynctl/dynctl/internal/cuda/kernels"
)

// shareOf is for shares of a softmax in float32: differences of logits up to 32 are off by
// 2^-20, and so are their powers of e, relative to their size.
var shareOf = Tolerance{Ulps: 0x1p-11, Float: true}

// routerLogits returns logits of a router. Some are equal to others of the same token.
func (l *Lab) routerLogits(tokens, count int) []float32 {
	v := make([]float32, tokens*count)
	for i := range v {
		v[i] = float32(l.NormFloat64() * 3)
		if other := i - i%count + l.IntN(count); l.IntN(4) == 0 {
			v[i] = v[other]
		}
	}
	return v
}

func routeCases() (all []Case) {
	add := func(name string, e kernels.Experts, normalize bool, logits func(l *Lab) []float32) {
		all = append(all, Case{Name: "route/" + name, Large: e.Tokens > 1000, Prepare: func(l *Lab) func(q *kernels.Queue) error {
			o := kernels.Route{Experts: e, Logits: l.Float32s(logits(l)...), Normalize: normalize}
			o.Chosen, o.Shares = l.Out("experts", 4*e.Tokens*e.Active, Exact), l.Out("shares", 4*e.Tokens*e.Active, shareOf)
			o.Plan = l.Out("plan", e.PlanBytes(), Exact)
			return func(q *kernels.Queue) error { return q.Route(o) }
		}})
	}
	for _, e := range []kernels.Experts{
		{Tokens: 1, Count: 1, Active: 1},
		{Tokens: 9, Count: 8, Active: 2},  // more tokens than a block has
		{Tokens: 40, Count: 5, Active: 5}, // all experts, and more pairs than a tile
		{Tokens: 37, Count: 70, Active: 3},
		{Tokens: 3, Count: 130, Active: 32},
		{Tokens: 2048, Count: 128, Active: 8},
	} {
		add(fmt.Sprintf("tokens=%d,experts=%d-of-%d", e.Tokens, e.Active, e.Count), e, e.Active%2 == 0, func(l *Lab) []float32 { return l.routerLogits(e.Tokens, e.Count) })
	}
	// All pairs may be of few experts: the last runs end with their experts.
	for _, tokens := range []int{15, 16, 17, 300} {
		e := kernels.Experts{Tokens: tokens, Count: 7, Active: 2}
		add(fmt.Sprintf("one-expert,tokens=%d", tokens), e, true, func(*Lab) []float32 {
			logits := make([]float32, tokens*e.Count)
			for i := range tokens {
				logits[i*e.Count+4] = 9
				logits[i*e.Count+max(0, i-tokens+3)]++ // the last tokens differ
			}
			return logits
		})
	}
	// Broken logits choose experts that there are, and each once.
	add("broken", kernels.Experts{Tokens: 5, Count: 4, Active: 3}, false, func(*Lab) []float32 {
		nan, inf, negativeZero := float32(math.NaN()), float32(math.Inf(1)), float32(math.Copysign(0, -1))
		return []float32{
			nan, nan, nan, nan,
			nan, -inf, nan, 1,
			inf, 0, inf, 0,
			-inf, -inf, -inf, -inf,
			negativeZero, 0, negativeZero, -1,
		}
	})
	return all
}

type expertCase struct {
	kind     kernels.WeightType
	experts  kernels.Experts
	rows, in int
	own      bool
}

func expertCases() (all []Case) {
	for _, c := range []expertCase{
		{kernels.BF16, kernels.Experts{Tokens: 1, Count: 3, Active: 1}, 1, 8, false},     // less than anything
		{kernels.BF16, kernels.Experts{Tokens: 5, Count: 9, Active: 3}, 67, 136, false},  // few pairs, an odd number of rows
		{kernels.BF16, kernels.Experts{Tokens: 20, Count: 4, Active: 2}, 64, 320, true},  // few pairs, as many steps as stages
		{kernels.BF16, kernels.Experts{Tokens: 21, Count: 2, Active: 2}, 130, 136, true}, // many pairs, ragged on all sides
		{kernels.BF16, kernels.Experts{Tokens: 70, Count: 2, Active: 1}, 128, 40, false}, // many pairs, more than a tile
		{kernels.Q8_0, kernels.Experts{Tokens: 5, Count: 9, Active: 3}, 67, 480, false},
		{kernels.Q8_0, kernels.Experts{Tokens: 21, Count: 2, Active: 2}, 130, 352, true},
		{kernels.E4M3, kernels.Experts{Tokens: 5, Count: 9, Active: 3}, 67, 464, false},
		{kernels.E4M3Blocks, kernels.Experts{Tokens: 5, Count: 9, Active: 3}, 67, 464, false},
		{kernels.E4M3, kernels.Experts{Tokens: 21, Count: 2, Active: 2}, 130, 336, true},
		{kernels.E4M3Blocks, kernels.Experts{Tokens: 21, Count: 2, Active: 2}, 130, 336, true},

		{kernels.BF16, kernels.Experts{Tokens: 33, Count: 16, Active: 4}, 1536, 512, false}, // few pairs of an expert
		{kernels.BF16, kernels.Experts{Tokens: 200, Count: 8, Active: 2}, 512, 768, true},   // many
		{kernels.Q8_0, kernels.Experts{Tokens: 33, Count: 16, Active: 4}, 1536, 512, false},
		{kernels.Q8_0, kernels.Experts{Tokens: 200, Count: 8, Active: 2}, 512, 768, true},
		{kernels.E4M3, kernels.Experts{Tokens: 200, Count: 8, Active: 2}, 512, 768, true},
		{kernels.E4M3Blocks, kernels.Experts{Tokens: 200, Count: 8, Active: 2}, 512, 768, true},
	} {
		e := c.experts
		all = append(all, Case{
			Name: fmt.Sprintf("experts/type=%s,tokens=%d,experts=%d-of-%d,rows=%d,in=%d,own=%t", weightNames[c.kind], e.Tokens, e.Active, e.Count, c.rows, c.in, c.own), Large: c.rows > 500,
			Prepare: func(l *Lab) func(q *kernels.Queue) error {
				o := kernels.ExpertMatMul{Experts: e, Rows: c.rows, In: c.in, Type: c.kind, Own: c.own}
				pairs := e.Tokens * e.Active
				o.Chosen, o.Shares, o.Plan = l.Working(4*pairs), l.Working(4*pairs), l.Working(e.PlanBytes())
				route := kernels.Route{Experts: o.Experts, Logits: l.Float32s(l.routerLogits(e.Tokens, e.Count)...)}
				inputs := e.Tokens
				if c.own {
					inputs = pairs
				}
				o.Out, o.X = l.Out("out", 2*pairs*c.rows, SumOf(c.in, false)), l.Values(inputs*c.in, 1)
				o.W, o.Scales = l.Weights(c.kind, e.Count*c.rows, c.in)
				return func(q *kernels.Queue) error {
					if err := q.Route(route); err != nil {
						return err
					}
					return q.ExpertMatMul(o)
				}
			},
		})
	}
	return all
}

func combineCases() (all []Case) {
	for _, c := range []struct {
		tokens, active, hidden int
		wide                   bool
	}{{1, 1, 8, false}, {3, 4, 2056, false}, {3, 4, 2056, true}, {300, 8, 2048, false}} {
		size, near := 2, OneUlp
		if c.wide {
			size, near = 4, SumOf(c.active, true)
		}
		all = append(all, Case{
			Name: fmt.Sprintf("combine/tokens=%d,experts=%d,hidden=%d,wide=%t", c.tokens, c.active, c.hidden, c.wide), Large: c.tokens > 100,
			Prepare: func(l *Lab) func(q *kernels.Queue) error {
				shares := make([]float32, c.tokens*c.active)
				for i := range shares {
					shares[i] = l.Float32()
				}
				o := kernels.Combine{
					Experts: kernels.Experts{Shares: l.Float32s(shares...), Tokens: c.tokens, Count: 8, Active: c.active},
					Out:     l.Out("out", size*c.tokens*c.hidden, near), X: l.Values(c.tokens*c.active*c.hidden, 1), Hidden: c.hidden, Wide: c.wide,
				}
				return func(q *kernels.Queue) error { return q.Combine(o) }
			},
		})
	}
	return all
}
