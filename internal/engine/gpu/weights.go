package gpu

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// ErrUnsupported is returned for models that the kernels cannot compute; the text says
// why, and what can.
var ErrUnsupported = errors.New("not supported on a GPU yet")

// Weights are those of a model in the memory of a device. Backends share them.
type Weights struct {
	device *Device
	model  *model.Model
	config model.Config
	scope  *device.Scope

	embed, head matrix
	finalNorm   uint64
	embedScale  float32
	layers      []layer
	act         kernels.Activation
	bytes       int64
	rounded     map[string]bool // types of matrices that became bf16
}

// layer has the addresses of its weights; 0 is one that the model does not have. Matrices
// that meet the same rows are one, one below the other, and so are those of experts.
type layer struct {
	attnNorm, postAttnNorm, mlpNorm, postMLPNorm uint64
	qkvBias, oBias, gateUpBias, downBias         uint64
	qNorm, kNorm                                 uint64
	qkv, o, gateUp, down                         matrix
	router                                       matrix // of a layer with experts
	window                                       int    // tokens that queries see, 0: all
	rope                                         int
}

// Load copies the weights of an open model to the device, as bf16 or Q8_0. It fails with
// [ErrUnsupported], with device.ErrNoRoom and the figures when they do not fit, and with
// an error of package model when a file has changed since the model was opened.
func (d *Device) Load(ctx context.Context, m *model.Model) (*Weights, error) {
	w := &Weights{device: d, model: m, config: m.Config(), rounded: map[string]bool{}}
	if err := w.load(ctx); err != nil {
		return nil, fmt.Errorf("load weights to %s: %w", d.id, errors.Join(err, w.Close(context.WithoutCancel(ctx))))
	}
	return w, nil
}

func (w *Weights) load(ctx context.Context) (err error) {
	if err := supported(w.config); err != nil {
		return err
	}
	r := reader{model: w.model}
	w.read(&r)
	if r.err != nil {
		return r.err
	}
	if w.scope, err = w.device.dev.NewScope(); err != nil {
		return err
	}
	w.bytes = r.bytes()
	arena, err := w.allocate()
	if err != nil {
		return err
	}
	if err := upload(ctx, w.device, arena, r.targets, w.rounded); err != nil {
		return err
	}
	if w.config.TiedHead {
		w.head = w.embed
	}
	w.scope.Seal()
	return w.model.Check()
}

func (w *Weights) allocate() (*device.Arena, error) {
	w.device.planning.Lock()
	defer w.device.planning.Unlock()
	if _, err := w.device.fit(device.Plan{Weights: w.bytes, BlockBytes: 1}); err != nil {
		return nil, err
	}
	return w.scope.Arena(device.Weights, w.bytes)
}

// supported says what of a model's shape no kernel computes.
func supported(c model.Config) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s; a CPU device (cpu:0) computes it", ErrUnsupported, fmt.Sprintf(format, args...))
	}
	switch {
	case c.HeadDim%16 != 0 || c.HeadDim > 256:
		return refuse("heads have %d dimensions, kernels know multiples of 16 up to 256", c.HeadDim)
	case c.MoE.Experts > kernels.MaxExperts || c.MoE.Active > kernels.MaxActive:
		return refuse("a token has %d of %d experts, kernels know %d of %d", c.MoE.Active, c.MoE.Experts, kernels.MaxActive, kernels.MaxExperts)
	case c.Hidden%8 != 0 || c.FFN%8 != 0 || c.MoE.FFN%8 != 0:
		return refuse("rows of %d and %d values are not multiples of 8", c.Hidden, max(c.FFN, c.MoE.FFN))
	}
	return nil
}

// read lists all weights with the places for their addresses.
func (w *Weights) read(r *reader) {
	c := w.config
	r.need(&w.embed, 0, 1, model.RoleEmbed)
	r.vector(&w.finalNorm, 0, model.RoleFinalNorm)
	if !c.TiedHead {
		r.need(&w.head, 0, 1, model.RoleHead)
	}
	w.embedScale = 1
	if c.ScaleEmbed {
		w.embedScale = safetensors.FromBF16(safetensors.ToBF16(float32(math.Sqrt(float64(c.Hidden)))))
	}
	w.act = kernels.SiLU
	if c.Act == model.GELUTanh {
		w.act = kernels.GELUTanh
	}
	w.layers = make([]layer, c.Layers)
	for i := range w.layers {
		l := &w.layers[i]
		r.vector(&l.attnNorm, i, model.RoleAttnNorm)
		r.need(&l.qkv, i, 1, model.RoleQ, model.RoleK, model.RoleV)
		r.vector(&l.qkvBias, i, model.RoleQBias, model.RoleKBias, model.RoleVBias)
		r.vector(&l.qNorm, i, model.RoleQNorm)
		r.vector(&l.kNorm, i, model.RoleKNorm)
		r.need(&l.o, i, 1, model.RoleO)
		r.vector(&l.oBias, i, model.RoleOBias)
		r.vector(&l.postAttnNorm, i, model.RolePostAttnNorm)
		r.vector(&l.mlpNorm, i, model.RoleMLPNorm)
		r.vector(&l.postMLPNorm, i, model.RolePostMLPNorm)
		if l.window = c.WindowOf(i); l.window > 0 && c.LocalRoPE != nil {
			l.rope = localRope
		}
		if c.Sparse(i) {
			r.need(&l.router, i, 1, model.RoleRouter)
			r.need(&l.gateUp, i, c.MoE.Experts, model.RoleExpertGate, model.RoleExpertUp)
			r.need(&l.down, i, c.MoE.Experts, model.RoleExpertDown)
			continue
		}
		r.need(&l.gateUp, i, 1, model.RoleGate, model.RoleUp)
		r.vector(&l.gateUpBias, i, model.RoleGateBias, model.RoleUpBias)
		r.need(&l.down, i, 1, model.RoleDown)
		r.vector(&l.downBias, i, model.RoleDownBias)
	}
}

// normOffset is added to the weights of norms.
func (w *Weights) normOffset() float32 {
	if w.config.NormPlusOne {
		return 1
	}
	return 0
}

// Bytes is the memory that the weights take on the device.
func (w *Weights) Bytes() int64 { return w.bytes }

// Warning says which weights were rounded to bf16; it is empty where none were.
func (w *Weights) Warning() string {
	for _, t := range []string{"F32", "F16"} {
		if w.rounded[t] {
			return "matrices of " + t + " are rounded to bf16"
		}
	}
	return ""
}

// Close frees the memory. All backends must be closed.
func (w *Weights) Close(ctx context.Context) error {
	if w.scope == nil {
		return nil
	}
	return w.scope.Close(ctx)
}
