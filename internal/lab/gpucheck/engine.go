package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/gpu"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/protocol"
)

// engineModels lists the models that the engine computes, the quick one first.
var engineModels = []string{"qwen3-0.6b", "llama-3.1-8b", "qwen3-8b"}

var (
	engineBatches = []int{1, 8, 64, 256}
	enginePrompts = []int{2048, 8192}
)

const (
	// decodeContext is the number of tokens of decoding sequences.
	decodeContext = 1024
	// Steps are measured one by one, by the host's clock: a step ends with tokens there.
	decodeSteps, prefillSteps = 30, 5
)

// answerCases compare what the engine answers on the device with what it answers on the CPU.
func answerCases() []Case {
	return []Case{
		{Name: "tokens", run: func(ctx context.Context, r *rig) (finding, error) { return checkTokens(ctx, r, []int{r.spec.Device}) }},
		{Name: "ranks=2", run: checkRanks},
	}
}

func engineCases() (all []Case) {
	for _, name := range engineModels {
		i := slices.IndexFunc(shapes, func(s shape) bool { return s.name == name })
		addWith := func(o gpu.DeviceOptions, what string, run func(ctx context.Context, e *loaded) (finding, error)) {
			all = append(all, Case{Name: name + "/" + what, run: func(ctx context.Context, r *rig) (finding, error) {
				e, err := r.engine(ctx, shapes[i], o)
				if err != nil {
					return finding{}, unfit(err)
				}
				return run(ctx, e)
			}})
		}
		add := func(what string, run func(ctx context.Context, e *loaded) (finding, error)) {
			addWith(gpu.DeviceOptions{}, what, run)
		}
		add("load", func(_ context.Context, e *loaded) (finding, error) { return e.found, nil })
		for _, n := range engineBatches {
			add(fmt.Sprintf("decode/batch=%d", n), func(ctx context.Context, e *loaded) (finding, error) { return e.decode(ctx, n) })
		}
		for _, n := range enginePrompts {
			add(fmt.Sprintf("prefill/tokens=%d", n), func(ctx context.Context, e *loaded) (finding, error) { return e.prefill(ctx, n) })
		}
		if name == workloadModel {
			add("workload", func(ctx context.Context, e *loaded) (f finding, err error) {
				err = e.alive("answering", func() error {
					f, err = e.offline(ctx)
					return err
				})
				return f, err
			})
		}
		if name != engineModels[0] {
			continue
		}
		for _, n := range engineBatches {
			addWith(gpu.DeviceOptions{Overlap: true}, fmt.Sprintf("overlap/decode/batch=%d", n), func(ctx context.Context, e *loaded) (finding, error) { return e.decode(ctx, n) })
		}
		for _, n := range enginePrompts {
			addWith(gpu.DeviceOptions{Portable: true}, fmt.Sprintf("portable/prefill/tokens=%d", n), func(ctx context.Context, e *loaded) (finding, error) { return e.prefill(ctx, n) })
		}
	}
	return all
}

// loaded is a model on the device, ready to compute.
type loaded struct {
	*rig
	name    string
	options gpu.DeviceOptions
	model   *model.Model
	device  *gpu.Device
	weights *gpu.Weights
	backend *gpu.Backend
	memory  engine.KVPool
	blocks  int     // of the pool
	prompt  int     // tokens of a step at most
	found   finding // how long it took to load
}

// engine loads a model of random weights onto a device that is used in some way, and lets go of
// the one before.
func (r *rig) engine(ctx context.Context, s shape, o gpu.DeviceOptions) (*loaded, error) {
	if r.loaded != nil && r.loaded.name == s.name && r.loaded.options == o {
		return r.loaded, nil
	}
	if r.loaded != nil {
		if err := r.loaded.close(ctx); err != nil {
			return nil, err
		}
	}
	if r.spec.Small {
		s = s.small()
	}
	e := &loaded{rig: r, name: s.name, options: o}
	r.loaded = e
	err := r.alive("loading "+s.name, func() error {
		dir, err := r.checkpoint(s)
		if err != nil {
			return err
		}
		if e.model, err = model.Open(dir, model.Options{}); err != nil {
			return err
		}
		return e.open(ctx)
	})
	return e, err
}

// open loads the model that is open, and takes memory for the largest cases.
func (e *loaded) open(ctx context.Context) (err error) {
	if e.device, err = gpu.OpenDevice(ctx, e.drv, e.spec.Device, e.options); err != nil {
		return err
	}
	begin := time.Now()
	if e.weights, err = e.device.Load(ctx, e.model); err != nil {
		return err
	}
	e.found.took = time.Since(begin).Seconds()
	e.found.rate(float64(e.weights.Bytes())/1e9, "GB/s")
	sequences := most(engineBatches, e.sequences)
	e.prompt = most(enginePrompts, e.tokens)
	o := gpu.Options{BlockSize: kvBlock, MaxContext: e.prompt + kvBlock, MaxTokens: e.prompt, MaxSeqs: sequences}
	if e.backend, err = e.weights.NewBackend(ctx, o); err != nil {
		return err
	}
	e.blocks = max(sequences*(e.tokens(decodeContext)/kvBlock+1), o.MaxContext/kvBlock+1)
	if e.name == workloadModel {
		e.blocks = max(e.blocks, sequences*workloadBlocks)
	}
	begin = time.Now()
	if e.memory, err = e.backend.AllocKV(e.blocks); err != nil {
		return err
	}
	e.found.also["graphs_ms"] = milliseconds(begin)
	return e.fill(ctx)
}

// most is the largest number that f makes.
func most(numbers []int, f func(n int) int) (out int) {
	for _, n := range numbers {
		out = max(out, f(n))
	}
	return out
}

// tokens and sequences are those of a case in the shapes that are measured.
func (e *loaded) tokens(n int) int {
	if e.spec.Small {
		return n/128 + 3
	}
	return n
}

func (e *loaded) sequences(n int) int { return shrunk(n, e.spec.Small) }

// fill fills the KV blocks with random numbers: contexts need not be computed.
func (e *loaded) fill(ctx context.Context) error {
	m, ok := e.memory[0].(*gpu.KVMemory)
	if !ok {
		return errors.New("the block pool is not memory of a GPU")
	}
	all := device.Region{Address: m.Address(), Bytes: m.Size()}
	return e.scoped(ctx, func(s *device.Scope) error { return e.fillRandom(ctx, s, all) })
}

func (e *loaded) close(ctx context.Context) error {
	e.rig.loaded = nil
	var errs []error
	if e.memory != nil {
		errs = append(errs, e.memory.Close())
	}
	if e.backend != nil {
		errs = append(errs, e.backend.Close())
	}
	if e.weights != nil {
		errs = append(errs, e.weights.Close(ctx))
	}
	if e.device != nil {
		errs = append(errs, e.device.Close(ctx))
	}
	if e.model != nil {
		errs = append(errs, e.model.Close())
	}
	return errors.Join(errs...)
}

// checkpoint is the folder of a model with random weights, which is written once and left
// for the next process: up to 16 GB each, in memory where there is room.
func (r *rig) checkpoint(s shape) (string, error) {
	spec := s.synthetic()
	parent := filepath.Join(r.spec.Models, fmt.Sprintf("%s-%d", s.name, s.hidden))
	if m, err := model.Open(parent, model.Options{}); err == nil {
		return parent, m.Close()
	}
	if err := os.MkdirAll(r.spec.Models, 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(r.spec.Models, "model-")
	if err != nil {
		return "", err
	}
	err = spec.Write(work)
	if err == nil {
		err = os.Rename(work, parent)
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(work))
	}
	return parent, nil
}

// synthetic is the checkpoint of a shape.
func (s shape) synthetic() model.Synthetic {
	family := "llama"
	if s.norm {
		family = "qwen3"
	}
	return model.Synthetic{
		Family: family, Layers: s.layers, Hidden: s.hidden, Heads: s.heads, KVHeads: s.kvHeads, HeadDim: s.headDim, FFN: s.inner, Vocab: s.vocab,
		ContextLen: 16384, DType: "bf16", Tied: s.tied, RopeTheta: 1e6, Seed: 1,
	}
}

// mostLikely asks for the token with the largest logit.
var mostLikely protocol.SamplingOptions

// sequence is the i-th sequence of a batch, in blocks of its own, whose next token the
// device chooses.
func (e *loaded) sequence(i, start int, tokens []uint32) engine.BatchSeq {
	n := (start+len(tokens)-1)/kvBlock + 1
	blocks := make([]int32, n)
	for b := range blocks {
		blocks[b] = int32(i*n + b)
	}
	return engine.BatchSeq{Tokens: tokens, Start: start, Blocks: blocks, Choice: &engine.Choice{Sampling: &mostLikely}}
}

func (e *loaded) random(n int) []uint32 {
	r := rand.New(rand.NewPCG(5, 6))
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(r.IntN(e.backend.Info().TokenLimit))
	}
	return out
}

// decode measures steps of sequences with a context each.
func (e *loaded) decode(ctx context.Context, sequences int) (finding, error) {
	n, past := e.sequences(sequences), e.tokens(decodeContext)-1
	tokens := e.random(n)
	batch := make([]engine.BatchSeq, n)
	for i := range batch {
		batch[i] = e.sequence(i, past, tokens[i:i+1])
	}
	f, err := e.steps(ctx, batch, decodeSteps)
	c := e.model.Config()
	kv := float64(e.backend.Info().KV.BlockBytes()) / kvBlock
	f.cost(e.spec.Rates, e.readBytes()+float64(n)*float64(past)*kv, float64(n)*(e.operations()+4*float64(past)*float64(c.Layers*c.Heads*c.HeadDim)))
	f.perSecond(n)
	return f, err
}

// prefill measures steps of a whole prompt.
func (e *loaded) prefill(ctx context.Context, tokens int) (finding, error) {
	n := e.tokens(tokens)
	f, err := e.steps(ctx, []engine.BatchSeq{e.sequence(0, 0, e.random(n))}, prefillSteps)
	c := e.model.Config()
	head := 2 * float64(c.Vocab) * float64(c.Hidden) // for the last token only
	attention := 4 * float64(n) * float64(n+1) / 2 * float64(c.Layers*c.Heads*c.HeadDim)
	f.cost(e.spec.Rates, e.readBytes(), float64(n)*(e.operations()-head)+head+attention)
	f.perSecond(n)
	return f, err
}

// perSecond adds how many tokens come in a second.
func (f *finding) perSecond(tokens int) {
	if f.also != nil {
		f.also["tokens_per_s"] = float64(tokens) / f.took
	}
}

// steps measures steps by the host's clock.
func (e *loaded) steps(ctx context.Context, batch []engine.BatchSeq, n int) (f finding, err error) {
	if e.spec.Small {
		n = sampled
	}
	for i := range n + 2 {
		begin := time.Now()
		if err := e.backend.Step(ctx, batch); err != nil {
			return f, err
		}
		for _, s := range batch {
			if s.Choice.Broken {
				return f, errors.New("there are logits that are no numbers")
			}
		}
		if i >= 2 { // the first ones warm up
			f.samples = append(f.samples, time.Since(begin).Seconds())
		}
	}
	return f, f.median()
}

// readBytes returns the bytes of weights that a step reads: of an embedding that is not the head, too,
// only some rows.
func (e *loaded) readBytes() float64 {
	c, n := e.model.Config(), float64(e.weights.Bytes())
	if !c.TiedHead {
		n -= 2 * float64(c.Vocab) * float64(c.Hidden)
	}
	return n
}

// operations are the multiplications and additions of a token's products.
func (e *loaded) operations() float64 { return e.readBytes() } // two for each weight of two bytes
