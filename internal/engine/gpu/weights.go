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

	embed, head, finalNorm uint64
	embedScale             float32
	layers                 []layer
	act                    kernels.Activation
	bytes                  int64
	rounded                map[string]bool // types of matrices that became bf16
}

// layer has addresses of its weights; 0 is one that the model does not have. Matrices
// that meet the same rows are one, one below the other.
type layer struct {
	attnNorm, postAttnNorm, mlpNorm, postMLPNorm uint64
	qkv, qkvBias, qNorm, kNorm, o, oBias         uint64
	gateUp, gateUpBias, down, downBias           uint64
	window                                       int // tokens that queries see, 0: all
	rope                                         int
}

// Load copies the weights of an open model to the device, as bf16. It fails with
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
	case c.MoE.Experts > 0:
		return refuse("the model has experts")
	case c.HeadDim != 64 && c.HeadDim != 128 && c.HeadDim != 256:
		return refuse("heads have %d dimensions, kernels know 64, 128 and 256", c.HeadDim)
	case c.Hidden%8 != 0 || c.FFN%8 != 0:
		return refuse("rows of %d and %d values are not multiples of 8", c.Hidden, c.FFN)
	}
	return nil
}

// read lists all weights with the places for their addresses.
func (w *Weights) read(r *reader) {
	c := w.config
	r.need(&w.embed, 0, model.RoleEmbed)
	r.need(&w.finalNorm, 0, model.RoleFinalNorm)
	if !c.TiedHead {
		r.need(&w.head, 0, model.RoleHead)
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
		r.need(&l.attnNorm, i, model.RoleAttnNorm)
		r.need(&l.qkv, i, model.RoleQ, model.RoleK, model.RoleV)
		r.want(&l.qkvBias, i, model.RoleQBias, model.RoleKBias, model.RoleVBias)
		r.want(&l.qNorm, i, model.RoleQNorm)
		r.want(&l.kNorm, i, model.RoleKNorm)
		r.need(&l.o, i, model.RoleO)
		r.want(&l.oBias, i, model.RoleOBias)
		r.want(&l.postAttnNorm, i, model.RolePostAttnNorm)
		r.need(&l.mlpNorm, i, model.RoleMLPNorm)
		r.need(&l.gateUp, i, model.RoleGate, model.RoleUp)
		r.want(&l.gateUpBias, i, model.RoleGateBias, model.RoleUpBias)
		r.need(&l.down, i, model.RoleDown)
		r.want(&l.downBias, i, model.RoleDownBias)
		r.want(&l.postMLPNorm, i, model.RolePostMLPNorm)
		if l.window = c.WindowOf(i); l.window > 0 && c.LocalRoPE != nil {
			l.rope = localRope
		}
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
			return "matrices of " + t + " are rounded to bf16, the only type that kernels multiply"
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
