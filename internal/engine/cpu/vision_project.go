package cpu

import (
	"github.com/dynctl/dynctl/internal/model"
)

// project computes a part of the results from the tower's last rows.
func (e *Encoder) project() error {
	k, p := &e.tasks, &e.tower.project
	e.source.form = p.in.form()
	if err := e.do(&k.source, e.perRow()); err != nil {
		return err
	}
	if err := e.do(&k.in, e.plan(&p.in)); err != nil || p.out.rows == 0 {
		return err
	}
	if err := e.prepare(&e.inner, p.out.form()); err != nil {
		return err
	}
	return e.do(&k.project, e.plan(&p.out))
}

// sourceItem makes the inputs of the projector.
func (e *Encoder) sourceItem(l *lane, item int) {
	from, to := e.itemRows(item)
	for r := from; r < to; r++ {
		e.gather(e.source.rows[r], e.from+r)
	}
	e.source.prepare(e.device.level, from, to)
}

// gather makes the input for a row of the results from the patches of its square.
func (e *Encoder) gather(out []float32, row int) {
	t, factor := e.tower, e.tower.Projector.Factor
	if t.Projector.Kind == model.ProjectMerge {
		first := int(e.grid.units[row]) * factor * factor
		for i := range factor * factor {
			t.project.norm.apply(e.device.level, out[i*t.Hidden:][:t.Hidden], e.x[first+i], t.Projector.NormEps)
		}
		return
	}
	if t.Projector.Kind == model.ProjectMLP {
		if !t.KeepClass {
			row += t.first()
		}
		copy(out, e.x[row])
		return
	}
	side := e.view.W / t.PatchSize
	wide := side / factor
	corner := row/wide*factor*side + row%wide*factor
	pool := t.Projector.Kind == model.ProjectPool
	if pool {
		clear(out)
	}
	for y := range factor {
		for x := range factor {
			patch := e.x[t.first()+corner+y*side+x]
			if pool {
				add(out, patch)
			} else {
				copy(out[(y*factor+x)*t.Hidden:], patch)
			}
		}
	}
	if pool {
		for i := range out {
			out[i] /= float32(factor * factor)
		}
		rmsNorm(e.device.level, out, out, t.project.norm.weight, t.Projector.NormEps)
	}
}

func (e *Encoder) inItem(l *lane, item int) {
	dst, inner := e.rows[e.from:e.to], e.tower.project.out.rows > 0
	if inner {
		dst = e.inner.rows
	}
	r0, r1, t0, t1 := e.grids[0].cell(item)
	e.tower.project.in.apply(l, r0, r1, e.source.span(t0, t1), dst[t0:t1])
	if inner {
		for t := t0; t < t1; t++ {
			gelu(e.device.level, e.tower.Projector.Act, dst[t][r0:r1])
		}
	}
}

func (e *Encoder) projectItem(l *lane, item int) {
	r0, r1, t0, t1 := e.grids[0].cell(item)
	e.tower.project.out.apply(l, r0, r1, e.inner.span(t0, t1), e.rows[e.from+t0:e.from+t1])
}
