package gpucheck

import (
	"errors"
	"math"

	"github.com/dynctl/dynctl/internal/cuda/kernels"
)

// mixture is the layer that is measured, with memory for the choice of experts and random
// logits of them.
func (j *job) mixture(tokens int) (mixture, kernels.Route) {
	m := expertShape
	if j.spec.Small {
		m, tokens = smallExperts, j.n(tokens)
	}
	e := kernels.Experts{Tokens: tokens, Count: m.count, Active: m.active}
	pairs := 4 * tokens * m.active
	e.Chosen, e.Shares, e.Plan = j.out(pairs), j.out(pairs), j.out(e.PlanBytes())
	return m, kernels.Route{Experts: e, Logits: j.in(4 * tokens * m.count), Normalize: true}
}

func (j *job) route(tokens int) work {
	m, o := j.mixture(tokens)
	return work{op: func(int) error { return j.q.Route(o) }, bytes: float64(4*o.Tokens*m.count + 2*4*o.Tokens*m.active)}
}

// experts are products of tokens with gate and up of their experts, which are chosen at
// random.
func (j *job) experts(tokens int) work {
	m, r := j.mixture(tokens)
	rows, pairs := 2*m.inner, r.Tokens*m.active
	o := kernels.ExpertMatMul{Experts: r.Experts, Out: j.out(2 * pairs * rows), X: j.in(2 * r.Tokens * m.hidden), Rows: rows, In: m.hidden}
	one := 2 * rows * m.hidden
	_ = j.address(j.matrix(m.count*one, 0)) // there is room
	if j.err == nil {
		j.err = errors.Join(j.q.Route(r), j.settle(j.ctx))
	}
	used := float64(m.count) * (1 - math.Pow(1-float64(m.active)/float64(m.count), float64(r.Tokens)))
	return work{
		op: func(i int) (err error) {
			o := o
			if o.W, err = j.matrix(m.count*one, i); err != nil {
				return err
			}
			return j.q.ExpertMatMul(o)
		},
		bytes:      used*float64(one) + float64(2*r.Tokens*m.hidden+2*pairs*rows),
		operations: 2 * float64(pairs) * float64(rows) * float64(m.hidden),
	}
}
