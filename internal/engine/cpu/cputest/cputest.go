// Package cputest runs small models on the cpu backend for other packages' tests.
//
// Start with [New]. A Runner owns a device, the weights, a backend and its block
// pool until the test ends; it may be used by one goroutine at a time.
//
// It does not schedule: a run has the whole pool to itself.
package cputest

import (
	"errors"
	"testing"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu"
	"github.com/dynctl/dynctl/internal/model"
)

// Runner generates text straight on a backend.
type Runner struct {
	Backend *cpu.Backend
	Model   *model.Model
	Memory  engine.KVPool
	t       testing.TB
	weights *cpu.Weights
	blocks  int
	logits  []float32
}

// New opens the model in dir on two cores with a pool for one sequence as long as
// the context, at most 4096 positions. Zero options stand for blocks of 16 tokens.
func New(t testing.TB, dir string, opts cpu.Options) *Runner {
	t.Helper()
	return newRunner(t, dir, model.Options{}, opts)
}

// NewQuantized is [New] for a model whose weights are quantized when it is opened.
func NewQuantized(t testing.TB, dir, format string, opts cpu.Options) *Runner {
	t.Helper()
	return newRunner(t, dir, model.Options{Quantize: format}, opts)
}

func newRunner(t testing.TB, dir string, open model.Options, opts cpu.Options) *Runner {
	t.Helper()
	if opts.BlockSize == 0 {
		opts.BlockSize = 16
	}
	m, err := model.Open(dir, open)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	if err := m.Prepare(t.Context(), model.Cache{Dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	d := cpu.NewDevice("cpu:0", 2)
	t.Cleanup(func() { _ = d.Close() })
	w, err := d.Load(m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	b, err := w.NewBackend(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	r := &Runner{Backend: b, Model: m, t: t, weights: w}
	r.blocks = (min(b.Info().MaxContext, 4096) + opts.BlockSize - 1) / opts.BlockSize
	if r.Memory, err = b.AllocKV(r.blocks); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Memory.Close() })
	r.logits = make([]float32, b.Info().VocabSize)
	return r
}

// Greedy continues the prompt by n tokens, always the one with the largest logit
// and the smallest id among equals; ids that the tokenizer does not know are left
// out. It does not stop at the end of a text.
func (r *Runner) Greedy(prompt []uint32, n int) []uint32 {
	r.t.Helper()
	return r.GreedyRows(prompt, nil, n)
}

// Encode returns the embeddings of prepared pictures.
func (r *Runner) Encode(views ...engine.View) [][]float32 {
	r.t.Helper()
	e, err := r.weights.NewEncoder()
	if err != nil {
		r.t.Fatal(err)
	}
	rows, err := e.Encode(r.t.Context(), views)
	if err := errors.Join(err, e.Close()); err != nil {
		r.t.Fatal(err)
	}
	return rows
}

// GreedyRows is [Runner.Greedy] for a prompt with embeddings in place of those of tokens,
// as [engine.BatchSeq] has them.
func (r *Runner) GreedyRows(prompt []uint32, rows [][]float32, n int) []uint32 {
	r.t.Helper()
	return r.GreedySeq(engine.BatchSeq{Tokens: prompt, Rows: rows}, n)
}

// GreedySeq is [Runner.Greedy] for a prompt with everything that images add to it.
func (r *Runner) GreedySeq(seq engine.BatchSeq, n int) []uint32 {
	r.t.Helper()
	table := make([]int32, r.blocks)
	for i := range table {
		table[i] = int32(i)
	}
	seq.Blocks, seq.Logits = table, r.logits
	out := make([]uint32, 0, n)
	for len(out) < n {
		if err := r.Backend.Step(r.t.Context(), []engine.BatchSeq{seq}); err != nil {
			r.t.Fatal(err)
		}
		out = append(out, Argmax(r.logits[:r.Backend.Info().TokenLimit]))
		seq.Start += len(seq.Tokens)
		seq.Tokens, seq.Rows, seq.Mutual = out[len(out)-1:], nil, nil
	}
	return out
}

// Argmax is the index of the largest value, the first among equals.
func Argmax(logits []float32) uint32 {
	best := 0
	for i, v := range logits {
		if v > logits[best] {
			best = i
		}
	}
	return uint32(best)
}
