package cpu

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// ErrNoVision is returned for an encoder of a model that reads text only.
var ErrNoVision = errors.New("the model does not read images")

// tower is the vision part of a model, shared by all encoders of the device.
type tower struct {
	model.Vision
	patch             matrix // [hidden][channel × row × column]
	class             []float32
	position          matrix // rows are only copied
	preNorm, postNorm layerNorm
	layers            []towerLayer
	freqs             []float32 // angle by which pairs turn for each row, and for each column; nil if none turn
	project           struct {
		norm    layerNorm
		in, out matrix
	}
	newline []float32 // nil if there is none
	out     int       // values of a row of the text model
}

// layerNorm is a norm with a mean and a bias, or an RMS norm where there is no bias; the zero
// value stands for none.
type layerNorm struct{ weight, bias []float32 }

type towerLayer struct {
	attnNorm, mlpNorm    layerNorm
	q, k, v, o, up, down matrix
	gate                 matrix // without rows if the MLP has none
	windowed             bool
	attnForm, outForm    form // of the inputs of products
	upForm, downForm     form
}

// towerTheta is the base of rotations in towers.
const towerTheta = 1e4

// LoadVision prepares the vision part of an open model alone, for encoders. No backend can be
// made of such weights.
func (d *Device) LoadVision(m *model.Model) (*Weights, error) {
	w := &Weights{device: d, model: m, config: m.Config()}
	if _, err := w.loadTower(); err != nil {
		return nil, fmt.Errorf("load weights: %w", errors.Join(err, w.Close()))
	}
	return w, nil
}

// loadTower returns the vision part. The first call reads and packs its weights.
func (w *Weights) loadTower() (*tower, error) {
	w.towerMu.Lock()
	defer w.towerMu.Unlock()
	if w.tower != nil {
		return w.tower, nil
	}
	if w.config.Vision == nil {
		return nil, ErrNoVision
	}
	t, err := w.readTower()
	if err != nil {
		return nil, err
	}
	if w.device.level == kernel.Portable {
		err = w.widenFP8(t.matrices())
	} else {
		err = w.pack(t.matrices())
	}
	if err == nil {
		err = w.widenFP8([]*matrix{&t.position})
	}
	if err == nil {
		err = w.model.Check()
	}
	if err != nil {
		return nil, err
	}
	if in := &t.project.in; in.packed.data != nil {
		in.f32, in.u16 = nil, nil // of a transposed one it is a copy
	}
	t.findForms()
	w.tower = t
	return t, nil
}

func (w *Weights) readTower() (t *tower, err error) {
	// The small tensors are copied out of the mapping.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = faultError(r)
		}
	}()
	t = &tower{Vision: *w.config.Vision, out: w.config.Hidden}
	r := reader{model: w.model, plusOne: w.config.NormPlusOne}
	t.patch = r.patches()
	t.class = r.optional(model.RoleClass, 0)
	if t.Grid {
		pairs := t.Hidden / t.Heads / 2
		t.freqs = model.RoPE{Theta: towerTheta}.InvFreq(pairs, 0)
	} else {
		t.position = r.matrix(model.RolePosition, 0)
	}
	t.preNorm = r.layerNorm(model.RoleVisionPreNorm, 0)
	t.postNorm = r.layerNorm(model.RoleVisionPostNorm, 0)
	for i := range t.Layers {
		t.layers = append(t.layers, towerLayer{
			attnNorm: r.layerNorm(model.RoleVisionNorm, i),
			mlpNorm:  r.layerNorm(model.RoleVisionMLPNorm, i),
			q:        r.linear(model.RoleVisionQ, model.RoleVisionQBias, i),
			k:        r.linear(model.RoleVisionK, model.RoleVisionKBias, i),
			v:        r.linear(model.RoleVisionV, model.RoleVisionVBias, i),
			o:        r.linear(model.RoleVisionO, model.RoleVisionOBias, i),
			up:       r.linear(model.RoleVisionUp, model.RoleVisionUpBias, i),
			down:     r.linear(model.RoleVisionDown, model.RoleVisionDownBias, i),
			windowed: t.Windowed != nil && t.Windowed[i],
		})
		if t.Gated {
			t.layers[i].gate = r.linear(model.RoleVisionGate, model.RoleVisionGateBias, i)
		}
	}
	t.project.norm = layerNorm{r.optional(model.RoleProjectNorm, 0), r.optional(model.RoleProjectNormBias, 0)}
	if t.Projector.Kind == model.ProjectPool {
		t.project.in = r.transposed(model.RoleProjectIn)
	} else {
		t.project.in = r.linear(model.RoleProjectIn, model.RoleProjectInBias, 0)
	}
	if t.Projector.Kind == model.ProjectMLP || t.Projector.Kind == model.ProjectMerge {
		t.project.out = r.linear(model.RoleProjectOut, model.RoleProjectOutBias, 0)
	}
	t.newline = r.optional(model.RoleNewline, 0)
	return t, r.err
}

// patches reads the convolution over patches as a matrix.
func (r *reader) patches() matrix {
	t, ok := r.model.Weight(model.RolePatch, 0)
	if !ok {
		r.fail(fmt.Errorf("no tensor of role %d", model.RolePatch))
		return matrix{}
	}
	cols := 1
	for _, n := range t.Shape[1:] {
		cols *= n
	}
	t.Shape = []int{t.Shape[0], cols}
	m, err := newMatrix(t)
	r.fail(err)
	m.bias = r.optional(model.RolePatchBias, 0)
	return m
}

// transposed reads a matrix whose inputs are rows.
func (r *reader) transposed(role model.Role) matrix {
	m := r.matrix(role, 0)
	switch {
	case m.f32 != nil:
		m.f32 = transpose(m.f32, m.rows, m.cols)
	case m.u16 != nil:
		m.u16 = transpose(m.u16, m.rows, m.cols)
	case r.err == nil:
		r.fail(fmt.Errorf("tensor %q has to be %s, %s or %s", m.name, safetensors.F32, safetensors.BF16, safetensors.F16))
	}
	m.rows, m.cols = m.cols, m.rows
	return m
}

func transpose[T any](in []T, rows, cols int) []T {
	out := make([]T, len(in))
	for r := range rows {
		for c := range cols {
			out[c*rows+r] = in[r*cols+c]
		}
	}
	return out
}

// layerNorm reads a norm, whose bias has the role behind that of the weight.
func (r *reader) layerNorm(role model.Role, layer int) layerNorm {
	return layerNorm{r.optional(role, layer), r.optional(role+1, layer)}
}

// matrices returns all matrices used in products.
func (t *tower) matrices() []*matrix {
	out := []*matrix{&t.patch, &t.project.in}
	for i := range t.layers {
		l := &t.layers[i]
		out = append(out, &l.q, &l.k, &l.v, &l.o, &l.up, &l.down)
		if l.gate.rows > 0 {
			out = append(out, &l.gate)
		}
	}
	if t.project.out.rows > 0 {
		out = append(out, &t.project.out)
	}
	return out
}

func (t *tower) findForms() {
	for i := range t.layers {
		l := &t.layers[i]
		l.attnForm, l.outForm = l.q.form()|l.k.form()|l.v.form(), l.o.form()
		l.upForm, l.downForm = l.up.form()|l.gate.form(), l.down.form()
	}
}

// EncoderBytes returns how much memory the first [Weights.NewEncoder] takes for a model
// beside the mapped files; 0 for a model that reads text only.
func (d *Device) EncoderBytes(m *model.Model) int64 {
	v := m.Config().Vision
	if v == nil {
		return 0
	}
	transposed := v.Projector.Kind == model.ProjectPool
	n := d.copyBytes(m, func(r model.Role) bool {
		return r.Vision() && r != model.RolePosition && !(transposed && r == model.RoleProjectIn)
	})
	if in, ok := m.Weight(model.RoleProjectIn, 0); ok && transposed {
		kind, _ := kindOf(in.DType)
		if d.level == kernel.Portable {
			return n + int64(kind.RowBytes(in.Shape[0]*in.Shape[1]))
		}
		n += panelBytes(kind, []int{in.Shape[1], in.Shape[0]})
	}
	return n
}
