package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu"
	"github.com/dynctl/dynctl/internal/kvlayout"
	"github.com/dynctl/dynctl/internal/media/picture"
	"github.com/dynctl/dynctl/internal/media/prepare"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/sharedmem"
	"github.com/dynctl/dynctl/internal/tensorfile"
	"github.com/dynctl/dynctl/internal/worker/media"
)

// images returns what prepares the images of a model, or why it takes none: nil and no error
// for a model of text.
func images(m *model.Model) (*prepare.Processor, error) {
	v := m.Config().Vision
	if v == nil {
		return nil, nil
	}
	files := prepare.Files{}
	for _, f := range m.Files() {
		switch f.Name {
		case model.PreprocessorName:
			files.Preprocessor = f.Data
		case model.ProcessorName:
			files.Processor = f.Data
		case model.ConfigName:
			files.Config = f.Data
		}
	}
	proc, err := prepare.Load(files)
	if err != nil {
		return nil, err
	}
	patch, frames, merge := proc.Cuts()
	if want := [3]int{v.PatchSize, v.Frames, v.Projector.Factor}; v.Grid && [3]int{patch, frames, merge} != want || !v.Grid && patch > 0 {
		return nil, fmt.Errorf("%s cuts patches of %d pixels and %d frames, %d × %d to a row; %s has %d, %d and %d", model.PreprocessorName, patch, frames, merge, merge, model.ConfigName, want[0], want[1], want[2])
	}
	return proc, nil
}

// encoder returns what encodes images with the weights; nil for a model of text, and for
// weights that cannot. A model whose images cannot be prepared as they must be serves text
// alone, and the log says so.
func (sm *sharedModel) encoder(log *slog.Logger) *encoder {
	proc, err := images(sm.model)
	if err != nil {
		log.Warn("the model takes no images", "model", sm.model.Dir(), "reason", err)
		return nil
	}
	w, ok := sm.weights.(towerWeights)
	if proc == nil || !ok {
		return nil
	}
	return &encoder{proc: proc, weights: heldTower{w, sm}, width: sm.model.Config().Hidden}
}

// towerWeights are weights of which encoders can be made.
type towerWeights interface {
	NewEncoder() (*cpu.Encoder, error)
}

// heldTower are the weights of a shared model, which counts the memory of its tower once that is
// packed.
type heldTower struct {
	towerWeights
	of *sharedModel
}

// NewEncoder makes an encoder. The first one packs the tower.
func (t heldTower) NewEncoder() (*cpu.Encoder, error) {
	e, err := t.towerWeights.NewEncoder()
	if err == nil {
		t.of.bytes.Add(t.of.later.Swap(0))
	}
	return e, err
}

// encoder computes the embeddings of images with the vision part of a model. It reads and
// packs the weights of that when the first image comes.
type encoder struct {
	proc    *prepare.Processor
	weights towerWeights
	width   int // values of an embedding

	mu  sync.Mutex // one image at a time
	enc *cpu.Encoder
}

// maxContent bounds what an encoder decodes: frontends have smaller limits of their own.
var maxContent = picture.Limits{Bytes: media.MaxContent}

// Encode implements media.Encoder.
func (e *encoder) Encode(ctx context.Context, part *protocol.MediaPart, content []byte) ([][]float32, error) {
	switch part.Kind {
	case protocol.MediaImage:
	case protocol.MediaEmbeddings:
		return e.read(content)
	default:
		return nil, fmt.Errorf("%w: content of kind %q", media.ErrBadContent, part.Kind)
	}
	proc := e.proc
	if part.Low {
		proc = proc.Low()
	}
	o := proc.DecodeOptions()
	o.Limits = maxContent
	img, err := picture.Decode(content, o)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", media.ErrBadContent, err)
	}
	in, err := proc.Prepare(img)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", media.ErrBadContent, err)
	}
	if g := part.Grid; in.Places != [3]int{g.T, g.H, g.W} {
		return nil, fmt.Errorf("%w: its rows stand in %v frames, rows and columns, the prompt has %v", media.ErrBadContent, in.Places, g)
	}
	if in.Patches != nil {
		return e.views(ctx, []engine.View{{W: in.W, H: in.H, Patches: in.Patches}})
	}
	views := make([]engine.View, len(in.Views))
	for i, v := range in.Views {
		views[i] = engine.View{W: v.W, H: v.H, Pixels: v.Pixels}
	}
	rows, err := e.views(ctx, views)
	if err != nil {
		return nil, err
	}
	return proc.Arrange(in.Plan, rows, e.newline())
}

func (e *encoder) newline() []float32 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.enc.Newline()
}

// read reads embeddings that were computed elsewhere.
func (e *encoder) read(content []byte) ([][]float32, error) {
	rows, err := tensorfile.Embeddings(content)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", media.ErrBadContent, err)
	}
	if len(rows[0]) != e.width {
		return nil, fmt.Errorf("%w: embeddings of %d values, those of the model have %d", media.ErrBadContent, len(rows[0]), e.width)
	}
	return rows, nil
}

func (e *encoder) views(ctx context.Context, views []engine.View) (_ [][]float32, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.enc == nil {
		if e.enc, err = e.weights.NewEncoder(); err != nil {
			return nil, err
		}
	}
	return e.enc.Encode(ctx, views)
}

func (e *encoder) close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.enc == nil {
		return nil
	}
	return e.enc.Close()
}

// towerBackend stands for the text model in a worker that encodes only. Its pool holds
// nothing, and a step proves that the vision part computes.
type towerBackend struct {
	*encoder
	device string
	vision model.Vision
}

// towerKV is the smallest shape of a pool.
var towerKV = kvlayout.Shape{Layers: 1, KVHeads: 1, HeadDim: 2, BlockSize: 16, DType: "f32"}

// Info implements engine.Backend. The vocabulary is that of the steps that warm it up.
func (b towerBackend) Info() engine.BackendInfo {
	return engine.BackendInfo{Device: b.device, DeviceName: b.device, VocabSize: 3, TokenLimit: 3, MaxContext: towerKV.BlockSize, TensorParallel: 1, KV: towerKV}
}

// AllocKV implements engine.Backend.
func (towerBackend) AllocKV(n int) (engine.KVPool, error) {
	mem, err := sharedmem.New("no-kv", n*int(towerKV.BlockBytes()))
	if err != nil {
		return nil, err
	}
	return engine.KVPool{mem}, nil
}

// Step implements engine.Backend: the logits are values of the embeddings of a gray view.
func (b towerBackend) Step(ctx context.Context, batch []engine.BatchSeq) error {
	rows, err := b.views(ctx, []engine.View{gray(b.vision)})
	if err != nil {
		return err
	}
	for _, row := range rows {
		for _, v := range row {
			if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				return errors.New("the vision part computes values that are no numbers: a file of its weights is damaged")
			}
		}
	}
	for i := range batch {
		copy(batch[i].Logits, rows[0])
	}
	return nil
}

// gray is the smallest view that the vision part reads.
func gray(v model.Vision) engine.View {
	if v.Grid {
		n := v.Projector.Factor
		return engine.View{W: n * v.PatchSize, H: n * v.PatchSize, Patches: make([]float32, n*n*v.PatchValues())}
	}
	return engine.View{W: v.ImageSize, H: v.ImageSize, Pixels: make([]float32, 3*v.ImageSize*v.ImageSize)}
}

// Close implements engine.Backend.
func (b towerBackend) Close() error { return b.close() }
