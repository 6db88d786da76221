package cpu

import (
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
	"github.com/dynctl/dynctl/internal/model"
)

// Weights are a model's weights on a device, shared by all backends that serve the model
// there. They stay where the model mapped them, so the model must stay open as long as
// any backend runs. With kernels there is also a packed copy of the matrices, which Close
// frees.
type Weights struct {
	device *Device
	model  *model.Model
	config model.Config

	embed      matrix
	embedScale float32 // 0 leaves embeddings unscaled
	head       matrix
	finalNorm  []float32
	layers     []layer
	fp8        bool           // matrices were fp8
	forms      forms          // of all layers
	unmap      []func() error // frees packed weights

	towerMu sync.Mutex
	tower   *tower // nil until there is an encoder
}

type layer struct {
	attnNorm, mlpNorm         []float32
	qNorm, kNorm              []float32 // nil without QKNorm
	postAttnNorm, postMLPNorm []float32 // nil without PostNorms
	q, k, v, o                matrix
	gate, up, down            matrix // of a layer without experts
	router                    matrix // of a layer with experts
	experts                   []expert
	window                    int // positions that queries attend to, 0 for all
	rope                      int // index of the rotation
	forms                     forms
}

// Load prepares the weights of an open model. On a portable device it reads little:
// matrices stay mapped unless the file holds them unaligned. Otherwise it copies all of
// them, with all cores, into the order of the kernels. It fails with
// safetensors.ErrChanged or [ErrMemory] when a weight file has changed its size since the
// model was opened.
func (d *Device) Load(m *model.Model) (*Weights, error) {
	w := &Weights{device: d, model: m, config: m.Config()}
	err := w.load()
	if err == nil {
		err = w.unpackFP8()
	}
	if err == nil {
		err = w.pack(w.matrices())
	}
	w.findForms()
	if err == nil {
		err = m.Check()
	}
	if err != nil {
		return nil, fmt.Errorf("load weights: %w", errors.Join(err, w.Close()))
	}
	return w, nil
}

// CopyBytes returns how much memory [Device.Load] takes for a model beside the mapped
// files: all matrices of the text model in panels or, on a portable device, fp8 converted
// to bf16.
func (d *Device) CopyBytes(m *model.Model) int64 {
	return d.copyBytes(m, func(r model.Role) bool { return !r.Vision() })
}

// copyBytes counts the tensors of some roles.
func (d *Device) copyBytes(m *model.Model, counts func(model.Role) bool) (n int64) {
	if d.level == kernel.Portable {
		return fp8Bytes(m, slices.DeleteFunc(slices.Clone(m.Tensors()), func(s model.TensorSpec) bool { return !counts(s.Role) })...)
	}
	kinds := make(map[string]kernel.Type)
	for _, info := range m.Inventory() {
		if kind, ok := kindOf(info.DType); ok {
			kinds[info.Name] = kind
		}
	}
	for _, spec := range m.Tensors() {
		if !counts(spec.Role) {
			continue
		}
		kind, ok := kinds[spec.Name]
		if spec.Role == model.RoleEmbed {
			n += fp8Bytes(m, spec)
		}
		if !ok || len(spec.Shape) < 2 || spec.Role == model.RoleEmbed && !m.Config().TiedHead {
			continue
		}
		if spec.Parts == nil {
			n += panelBytes(kind, spec.Shape)
		}
		for _, part := range spec.Parts { // separate matrices
			n += panelBytes(kind, part.Shape)
		}
	}
	return n
}

// panelBytes returns the size of a matrix in panels. All dimensions but the first are
// inputs.
func panelBytes(kind kernel.Type, shape []int) int64 {
	cols := 1
	for _, n := range shape[1:] {
		cols *= n
	}
	return int64(kernel.Panels(shape[0])) * int64(kernel.PanelBytes(kind, cols))
}

// Close frees packed weights. No backend may run a step, and no encoder encode, during or
// after it.
func (w *Weights) Close() error {
	var err error
	for _, unmap := range w.unmap {
		err = errors.Join(err, unmap())
	}
	w.unmap = nil
	return err
}

// matrices returns all matrices used in products. Rows of the embedding are only copied.
func (w *Weights) matrices() []*matrix {
	var out []*matrix
	add := func(m ...*matrix) {
		for _, m := range m {
			if m.rows > 0 {
				out = append(out, m)
			}
		}
	}
	for i := range w.layers {
		l := &w.layers[i]
		add(&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down, &l.router)
		for e := range l.experts {
			add(&l.experts[e].gate, &l.experts[e].up, &l.experts[e].down)
		}
	}
	add(&w.head)
	return out
}

// findForms collects the forms of activations that the matrices need.
func (w *Weights) findForms() {
	for i := range w.layers {
		l := &w.layers[i]
		l.forms = forms{
			attn: l.q.form() | l.k.form() | l.v.form(),
			out:  l.o.form(),
			mlp:  l.gate.form() | l.up.form() | l.router.form(),
			down: l.down.form(),
		}
		for e := range l.experts {
			e := &l.experts[e]
			l.forms.mlp |= e.gate.form() | e.up.form()
			l.forms.down |= e.down.form()
		}
		w.forms.add(l.forms)
	}
}

func (w *Weights) load() (err error) {
	// The small tensors are copied out of the mapping.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = faultError(r)
		}
	}()
	c := w.config
	r := reader{model: w.model, plusOne: c.NormPlusOne}
	w.embed = r.matrix(model.RoleEmbed, 0)
	if c.ScaleEmbed {
		w.embedScale = w.embed.round(float32(math.Sqrt(float64(c.Hidden))))
	}
	w.head = r.matrix(model.RoleHead, 0)
	w.finalNorm = r.vector(model.RoleFinalNorm, 0)
	w.layers = make([]layer, c.Layers)
	for i := range w.layers {
		w.layers[i] = r.layer(c, i)
	}
	return r.err
}

// reader reads tensors by role and keeps the first error.
type reader struct {
	model   *model.Model
	plusOne bool // the stored weights of norms lack 1
	err     error
}

func (r *reader) layer(c model.Config, i int) layer {
	l := layer{
		attnNorm:     r.vector(model.RoleAttnNorm, i),
		q:            r.linear(model.RoleQ, model.RoleQBias, i),
		k:            r.linear(model.RoleK, model.RoleKBias, i),
		v:            r.linear(model.RoleV, model.RoleVBias, i),
		o:            r.linear(model.RoleO, model.RoleOBias, i),
		qNorm:        r.optional(model.RoleQNorm, i),
		kNorm:        r.optional(model.RoleKNorm, i),
		postAttnNorm: r.optional(model.RolePostAttnNorm, i),
		mlpNorm:      r.vector(model.RoleMLPNorm, i),
		postMLPNorm:  r.optional(model.RolePostMLPNorm, i),
		window:       c.WindowOf(i),
	}
	if l.window > 0 && c.LocalRoPE != nil {
		l.rope = localRope
	}
	if !c.Sparse(i) {
		l.gate = r.linear(model.RoleGate, model.RoleGateBias, i)
		l.up = r.linear(model.RoleUp, model.RoleUpBias, i)
		l.down = r.linear(model.RoleDown, model.RoleDownBias, i)
		return l
	}
	l.router = r.matrix(model.RoleRouter, i)
	l.router.exact = true
	l.experts = make([]expert, c.MoE.Experts)
	for e := range l.experts {
		l.experts[e] = expert{
			gate: r.expert(model.RoleExpertGate, i, e),
			up:   r.expert(model.RoleExpertUp, i, e),
			down: r.expert(model.RoleExpertDown, i, e),
		}
	}
	return l
}

func (r *reader) matrix(role model.Role, layer int) matrix { return r.expert(role, layer, 0) }

func (r *reader) expert(role model.Role, layer, expert int) matrix {
	t, ok := r.model.Expert(role, layer, expert)
	if !ok {
		r.fail(fmt.Errorf("layer %d has no tensor of role %d", layer, role))
		return matrix{}
	}
	m, err := newMatrix(t)
	r.fail(err)
	return m
}

func (r *reader) linear(role, bias model.Role, layer int) matrix {
	m := r.matrix(role, layer)
	m.bias = r.optional(bias, layer)
	return m
}

func (r *reader) vector(role model.Role, layer int) []float32 {
	v := r.optional(role, layer)
	if v == nil {
		r.fail(fmt.Errorf("layer %d has no tensor of role %d", layer, role))
	}
	return v
}

func (r *reader) optional(role model.Role, layer int) []float32 {
	t, ok := r.model.Weight(role, layer)
	if !ok {
		return nil
	}
	v, err := vector(t)
	r.fail(err)
	if r.plusOne && role.Norm() {
		for i := range v {
			v[i]++
		}
	}
	return v
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}
