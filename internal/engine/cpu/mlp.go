package cpu

import (
	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
	"github.com/dynctl/dynctl/internal/model"
)

func (s *step) mlpNormItem(l *lane, item int) {
	p := &s.b.pass
	from, to := s.itemTokens(item)
	for t := from; t < to; t++ {
		rmsNorm(s.b.device.level, p.norm.rows[t], p.x[t], s.layer.mlpNorm, s.b.weights.config.NormEps)
	}
	p.norm.prepare(s.b.device.level, from, to)
}

// gateItem computes the same rows of gate and up and joins them.
func (s *step) gateItem(l *lane, item int) {
	p := &s.b.pass
	r0, r1, t0, t1 := s.grids[0].cell(item)
	s.layer.gate.apply(l, r0, r1, p.norm.span(t0, t1), p.gate.rows[t0:t1])
	s.layer.up.apply(l, r0, r1, p.norm.span(t0, t1), p.up[t0:t1])
	for t := t0; t < t1; t++ {
		s.activate(p.gate.rows[t][r0:r1], p.up[t][r0:r1])
	}
}

// activate combines gate and up; the result replaces gate.
func (s *step) activate(gate, up []float32) {
	if s.b.weights.config.Act == model.GELUTanh {
		for i, u := range up {
			gate[i] = geluTanh(gate[i]) * u
		}
		return
	}
	swiglu(s.b.device.level, gate, up)
}

// swiglu multiplies silu of gate with up; the result replaces gate.
func swiglu(level kernel.Level, gate, up []float32) {
	n := 0
	if level != kernel.Portable {
		n = level.Swiglu(gate, up)
	}
	for i := n; i < len(gate); i++ {
		gate[i] = silu(gate[i]) * up[i]
	}
}

func (s *step) downItem(l *lane, item int) {
	s.project(l, &s.layer.down, &s.b.pass.gate, item, s.layer.postMLPNorm != nil)
}

// project adds a product to the residual. If joined is set, the product must be
// normalized first, which needs whole rows, and join adds it later.
func (s *step) project(l *lane, m *matrix, src *activations, item int, joined bool) {
	p := &s.b.pass
	r0, r1, t0, t1 := s.grids[0].cell(item)
	m.apply(l, r0, r1, src.span(t0, t1), p.proj[t0:t1])
	if joined {
		return
	}
	for t := t0; t < t1; t++ {
		x, add := p.x[t][r0:r1], p.proj[t][r0:r1]
		for i, a := range add {
			x[i] += a
		}
	}
}

func (s *step) attnJoinItem(l *lane, item int) { s.join(item, s.layer.postAttnNorm) }

func (s *step) mlpJoinItem(l *lane, item int) { s.join(item, s.layer.postMLPNorm) }

// join normalizes the product that project left and adds it to the residual.
func (s *step) join(item int, norm []float32) {
	p := &s.b.pass
	from, to := s.itemTokens(item)
	for t := from; t < to; t++ {
		rmsNorm(s.b.device.level, p.proj[t], p.proj[t], norm, s.b.weights.config.NormEps)
		add(p.x[t], p.proj[t])
	}
}

// add adds v to sum.
func add(sum, v []float32) {
	v = v[:len(sum)]
	for i := range sum {
		sum[i] += v[i]
	}
}
