package gpu

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// ErrUnsupported is returned for models that the kernels cannot compute. The text says
// why, and which device can.
var ErrUnsupported = errors.New("not supported on a GPU yet")

// Weights are a model's weights in the memory of a device, shared by its backends.
type Weights struct {
	device *Device
	model  *model.Model
	config model.Config

	shards     []*shard // by rank
	embedScale float32
	act        kernels.Activation
	bytes      int64
	rounded    map[string]bool // types of matrices that became bf16
}

// shard is a rank's part of the weights: its heads, its columns of MLPs and of all
// experts, its part of the output head, and all weights outside of products. The first
// rank holds the biases of sums over ranks.
type shard struct {
	*Weights
	rank           int
	unit           *unit
	scope          *device.Scope
	heads, kvHeads int
	vocab          span
	inner          int // the largest of all layers, of each expert

	embed, head matrix
	finalNorm   uint64
	layers      []layer
	bytes       int64
}

// layer holds the addresses of its weights; 0 means that the model lacks one. Matrices
// that multiply the same rows are stacked into one, and so are those of experts.
type layer struct {
	inner                                        int // values of its MLP, or of each expert
	attnNorm, postAttnNorm, mlpNorm, postMLPNorm uint64
	qkvBias, oBias, gateUpBias, downBias         uint64
	qNorm, kNorm                                 uint64
	qkv, o, gateUp, down                         matrix
	router                                       matrix // of a layer with experts
	window                                       int    // tokens that queries attend to, 0 for all
	rope                                         int
}

// Load copies the weights of an open model to the device, as bf16, fp8 or Q8_0. It fails
// with [ErrUnsupported]; with device.ErrNoRoom and the sizes if they do not fit; and with
// an error of package model if a file has changed since the model was opened.
func (d *Device) Load(ctx context.Context, m *model.Model) (*Weights, error) {
	w := &Weights{device: d, model: m, config: m.Config(), rounded: map[string]bool{}}
	if err := w.load(ctx); err != nil {
		return nil, fmt.Errorf("load weights to %s: %w", d.id, errors.Join(err, w.Close(context.WithoutCancel(ctx))))
	}
	return w, nil
}

// Supports returns an error if the device cannot compute a model of this shape.
func (d *Device) Supports(c model.Config) error {
	if err := supported(c); err != nil {
		return err
	}
	return engine.CheckTensorParallel(len(d.ranks), c.Heads, c.KVHeads)
}

func (w *Weights) load(ctx context.Context) (err error) {
	c, ranks := w.config, len(w.device.ranks)
	if err := w.device.Supports(c); err != nil {
		return err
	}
	w.embedScale = 1
	if c.ScaleEmbed {
		w.embedScale = safetensors.FromBF16(safetensors.ToBF16(float32(math.Sqrt(float64(c.Hidden)))))
	}
	w.act = kernels.SiLU
	if c.Act == model.GELUTanh {
		w.act = kernels.GELUTanh
	}
	readers := make([]reader, ranks)
	for rank, u := range w.device.ranks {
		s := &shard{Weights: w, rank: rank, unit: u, heads: c.Heads / ranks, kvHeads: c.KVHeads / ranks, vocab: vocabShare(c.Vocab, rank, ranks)}
		r := &readers[rank]
		*r = reader{model: w.model, rank: rank, ranks: ranks, rounded: w.rounded}
		s.read(r)
		if r.err != nil {
			return r.err
		}
		s.bytes = r.bytes()
		w.bytes += s.bytes
		if s.scope, err = u.dev.NewScope(); err != nil {
			return err
		}
		w.shards = append(w.shards, s)
	}
	arenas, err := w.allocate()
	if err != nil {
		return err
	}
	errs := make([]error, ranks)
	var all sync.WaitGroup
	for i, s := range w.shards {
		all.Go(func() { errs[i] = s.load(ctx, arenas[i], readers[i].targets) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return w.model.Check()
}

// load fills the memory of a rank.
func (s *shard) load(ctx context.Context, arena *device.Arena, targets []target) error {
	if err := upload(ctx, s.unit, arena, targets); err != nil {
		return err
	}
	if s.config.TiedHead {
		weights, scales := s.embed.kind.Bytes(s.vocab.from, s.config.Hidden)
		s.head = matrix{s.embed.at + uint64(weights), s.embed.scales + uint64(scales), s.embed.kind}
	}
	s.scope.Seal()
	return nil
}

// allocate allocates the memory of all ranks.
func (w *Weights) allocate() (arenas []*device.Arena, err error) {
	w.device.planning.Lock()
	defer w.device.planning.Unlock()
	if _, err := w.device.fit(func(rank int) device.Plan { return device.Plan{Weights: w.shards[rank].bytes, BlockBytes: 1} }); err != nil {
		return nil, err
	}
	for _, s := range w.shards {
		a, err := s.scope.Arena(device.Weights, s.bytes)
		if err != nil {
			return nil, err
		}
		arenas = append(arenas, a)
	}
	return arenas, nil
}

// supported returns an error for a feature of the model that no kernel computes.
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

// read lists the weights of a rank with the places for their addresses.
func (s *shard) read(r *reader) {
	c := s.config
	heads := sharing{piece: c.HeadDim}
	r.need(&s.embed, 0, 1, sharing{}, model.RoleEmbed)
	r.vector(&s.finalNorm, 0, sharing{}, model.RoleFinalNorm)
	if !c.TiedHead && s.vocab.n > 0 {
		head := sharing{piece: headPiece}
		if s.vocab.n == c.Vocab {
			head = sharing{}
		}
		r.need(&s.head, 0, 1, head, model.RoleHead)
	}
	s.layers = make([]layer, c.Layers)
	for i := range s.layers {
		l := &s.layers[i]
		r.vector(&l.attnNorm, i, sharing{}, model.RoleAttnNorm)
		r.need(&l.qkv, i, 1, heads, model.RoleQ, model.RoleK, model.RoleV)
		r.vector(&l.qkvBias, i, heads, model.RoleQBias, model.RoleKBias, model.RoleVBias)
		r.vector(&l.qNorm, i, sharing{}, model.RoleQNorm)
		r.vector(&l.kNorm, i, sharing{}, model.RoleKNorm)
		r.need(&l.o, i, 1, sharing{c.HeadDim, true}, model.RoleO)
		r.vector(&l.postAttnNorm, i, sharing{}, model.RolePostAttnNorm)
		r.vector(&l.mlpNorm, i, sharing{}, model.RoleMLPNorm)
		r.vector(&l.postMLPNorm, i, sharing{}, model.RolePostMLPNorm)
		if s.rank == 0 {
			r.vector(&l.oBias, i, sharing{}, model.RoleOBias)
			r.vector(&l.downBias, i, sharing{}, model.RoleDownBias)
		}
		if l.window = c.WindowOf(i); l.window > 0 && c.LocalRoPE != nil {
			l.rope = localRope
		}
		s.readMLP(r, l, i)
		s.inner = max(s.inner, l.inner)
	}
}

// readMLP lists the weights of a layer's MLP or experts. Each rank has some columns of
// every expert, so that ranks have equal work whichever experts tokens choose.
func (s *shard) readMLP(r *reader, l *layer, i int) {
	c := s.config
	experts, inner := 1, c.FFN
	gate, up, down := model.RoleGate, model.RoleUp, model.RoleDown
	if c.Sparse(i) {
		r.need(&l.router, i, 1, sharing{}, model.RoleRouter)
		experts, inner = c.MoE.Experts, c.MoE.FFN
		gate, up, down = model.RoleExpertGate, model.RoleExpertUp, model.RoleExpertDown
	}
	of, _ := s.model.Expert(down, i, 0) // need reports a missing tensor
	columns := sharing{innerPiece(of), true}
	rows := sharing{piece: columns.piece}
	if l.inner = inner; r.ranks > 1 {
		if l.inner = shareOf(inner, rows.piece, s.rank, r.ranks).n; l.inner == 0 || inner%rows.piece != 0 {
			r.refuse("%d ranks cannot share the %d columns of MLPs in pieces of %d", r.ranks, inner, rows.piece)
			return
		}
	}
	r.need(&l.gateUp, i, experts, rows, gate, up)
	r.need(&l.down, i, experts, columns, down)
	if !c.Sparse(i) {
		r.vector(&l.gateUpBias, i, rows, model.RoleGateBias, model.RoleUpBias)
	}
}

// normOffset returns the value added to the weights of norms.
func (w *Weights) normOffset() float32 {
	if w.config.NormPlusOne {
		return 1
	}
	return 0
}

// Bytes returns the device memory of the weights, of all ranks.
func (w *Weights) Bytes() int64 { return w.bytes }

// Warning returns which weights were rounded to bf16, or "".
func (w *Weights) Warning() string {
	for _, t := range []string{"F32", "F16", "F8_E4M3"} {
		if w.rounded[t] {
			return "matrices of " + t + " are rounded to bf16"
		}
	}
	return ""
}

// Close frees the memory. All backends must be closed.
func (w *Weights) Close(ctx context.Context) error {
	var errs []error
	for _, s := range w.shards {
		errs = append(errs, s.scope.Close(ctx))
	}
	return errors.Join(errs...)
}
