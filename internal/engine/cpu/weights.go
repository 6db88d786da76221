package cpu

import (
	"fmt"
	"runtime/debug"

	"github.com/dynctl/dynctl/internal/model"
)

// Weights are a model's weights on a device. All backends of the device that serve
// the model share them. They stay where the model mapped them, so the model must
// stay open as long as any backend runs.
type Weights struct {
	device *Device
	model  *model.Model
	config model.Config

	embed     matrix
	head      matrix
	finalNorm []float32
	layers    []layer
	invFreq   []float32 // angle per position of each pair of a head
}

type layer struct {
	attnNorm, mlpNorm []float32
	qNorm, kNorm      []float32 // nil without QKNorm
	q, k, v, o        matrix
	gate, up, down    matrix
}

// Load prepares the weights of an open model. It reads little: matrices stay
// mapped unless the file holds them unaligned. It fails with
// safetensors.ErrChanged or [ErrMemory] when a weight file has changed its size
// since the model was opened.
func (d *Device) Load(m *model.Model) (*Weights, error) {
	w := &Weights{device: d, model: m, config: m.Config()}
	if err := w.load(); err != nil {
		return nil, fmt.Errorf("load weights: %w", err)
	}
	return w, nil
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
	r := reader{model: w.model}
	w.embed = r.matrix(model.RoleEmbed, 0)
	w.head = r.matrix(model.RoleHead, 0)
	w.finalNorm = r.vector(model.RoleFinalNorm, 0)
	w.layers = make([]layer, c.Layers)
	for i := range w.layers {
		w.layers[i] = layer{
			attnNorm: r.vector(model.RoleAttnNorm, i),
			q:        r.linear(model.RoleQ, model.RoleQBias, i),
			k:        r.linear(model.RoleK, model.RoleKBias, i),
			v:        r.linear(model.RoleV, model.RoleVBias, i),
			o:        r.linear(model.RoleO, model.RoleOBias, i),
			qNorm:    r.optional(model.RoleQNorm, i),
			kNorm:    r.optional(model.RoleKNorm, i),
			mlpNorm:  r.vector(model.RoleMLPNorm, i),
			gate:     r.linear(model.RoleGate, model.RoleGateBias, i),
			up:       r.linear(model.RoleUp, model.RoleUpBias, i),
			down:     r.linear(model.RoleDown, model.RoleDownBias, i),
		}
	}
	if r.err != nil {
		return r.err
	}
	w.invFreq = c.RoPE.InvFreq(c.HeadDim)
	return w.model.Check()
}

// reader reads tensors by role; the first error sticks.
type reader struct {
	model *model.Model
	err   error
}

func (r *reader) matrix(role model.Role, layer int) matrix {
	t, ok := r.model.Weight(role, layer)
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
	return v
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}
