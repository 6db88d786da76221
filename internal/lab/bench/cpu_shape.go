package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/dynctl/dynctl/internal/model"
)

// cpuShape is a model under measurement.
type cpuShape struct {
	name string // as in the published figures
	spec model.Synthetic
}

// cpuShapes returns the shapes of the published figures.
func cpuShapes() []cpuShape {
	return []cpuShape{
		{"qwen3-0.6b", syntheticModel(syntheticLayers)},
		{"llama-3.2-1b", model.Synthetic{
			Family: "llama", Layers: 16, Hidden: 2048, Heads: 32, KVHeads: 8, HeadDim: 64, FFN: 8192,
			Vocab: 128256, ContextLen: 131072, DType: "bf16", Tied: true, RopeTheta: 5e5, Seed: 1,
		}},
	}
}

// cutShapes returns the shapes with fewer layers, for which there are no published
// figures.
func cutShapes(layers int) []cpuShape {
	shapes := cpuShapes()
	for i := range shapes {
		shapes[i].name += fmt.Sprintf(" cut to %d layers", layers)
		shapes[i].spec.Layers = layers
	}
	return shapes
}

// cpuFormat is a type of weights.
type cpuFormat struct {
	name string  // as in the published figures
	bits float64 // of one weight of a matrix, including its part of scales
	// bytes reports that products may use 8-bit integers, so that their peak is a limit,
	// too.
	bytes bool
	// quantize is the format of [model.Options.Quantize]; empty for the checkpoint's
	// bf16.
	quantize string
}

// cpuFormats returns the formats of the published figures.
func cpuFormats() []cpuFormat {
	return []cpuFormat{
		{name: "bf16", bits: 16},
		{name: "q8_0", bits: 8.5, bytes: true, quantize: "q8_0"},
		{name: "q4_0", bits: 4.5, bytes: true, quantize: "q4_0"},
	}
}

// open opens a bf16 checkpoint with its matrices in the format. It quantizes them at
// first use and keeps them in the folder cache.
func (f cpuFormat) open(ctx context.Context, dir, cache string, log *slog.Logger) (*model.Model, error) {
	m, err := model.Open(dir, model.Options{Log: log, Quantize: f.quantize})
	if err != nil {
		return nil, err
	}
	if err := m.Prepare(ctx, model.Cache{Dir: cache, Log: log}); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// errFormat is returned for an unknown format of weights.
var errFormat = errors.New("unknown format of weights")

func formatNamed(name string) (cpuFormat, error) {
	for _, f := range cpuFormats() {
		if f.name == name {
			return f, nil
		}
	}
	return cpuFormat{}, fmt.Errorf("%w: %q", errFormat, name)
}

// work counts the least memory and arithmetic that a model's steps need.
type work struct {
	weights float64 // bytes read in a decode step
	kv      float64 // bytes of a position
	// Operations: of a token in all layers, of one row of logits, of a token and a
	// position that it attends to.
	layers, head, seen float64
}

// newWork counts for a model whose matrices have the given bits per weight and whose KV
// has the given bytes per position.
func newWork(m *model.Model, bits, kv float64) work {
	c := m.Config()
	w := work{
		kv:   kv,
		seen: float64(4 * c.Layers * c.Heads * c.HeadDim),
		head: float64(2 * c.Hidden * c.Vocab),
	}
	for _, spec := range m.Tensors() {
		if spec.Role.Vision() {
			continue // no step reads it
		}
		n := 1
		for _, d := range spec.Shape {
			n *= d
		}
		switch {
		case len(spec.Shape) < 2: // norms keep their type
			w.weights += float64(m.TensorBytes(spec.Name))
		case spec.Role == model.RoleEmbed && !c.TiedHead: // one row
		case spec.Role == model.RoleEmbed || spec.Role == model.RoleHead:
			w.weights += float64(n) * bits / 8
		default:
			w.weights += float64(n) * bits / 8
			w.layers += float64(2 * n)
		}
	}
	return w
}

// prefill returns the operations per token of a prompt of n tokens.
func (w work) prefill(n int) float64 {
	return w.layers + w.seen*float64(n+1)/2 + w.head/float64(n)
}

// decodeOps returns the operations of a token after past others.
func (w work) decodeOps(past int) float64 { return w.layers + w.head + w.seen*float64(past) }

// decodeBytes returns the bytes read per token when seqs sequences of length past decode
// together.
func (w work) decodeBytes(seqs, past int) float64 {
	return w.weights/float64(seqs) + w.kv*float64(past)
}
