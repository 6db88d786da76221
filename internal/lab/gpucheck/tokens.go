package gpucheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"

	"github.com/dynctl/dynctl/internal/chat"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu"
	"github.com/dynctl/dynctl/internal/engine/gpu"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/recall"
)

// The built-in model answers questions about a text, whose answers do not hang on a
// rounding.
const (
	questions    = 4
	answerTokens = 16
	textBlocks   = 40
	textBlock    = 16
)

// checkRanks has two tensor-parallel ranks answer: on another GPU beside the one that is
// checked, where that has one which it reaches, and else both on it.
func checkRanks(ctx context.Context, r *rig) (finding, error) {
	other := r.spec.Device
	for i := range r.drv.DeviceCount() {
		can, err := r.drv.CanAccessPeer(r.spec.Device, i)
		if err != nil {
			return finding{}, err
		}
		p, err := r.drv.DeviceProperties(i)
		if err != nil {
			return finding{}, err
		}
		if can && fmt.Sprintf("%d.%d", p.Major, p.Minor) == r.about.Capability {
			other = i
			break
		}
	}
	f, err := checkTokens(ctx, r, []int{r.spec.Device, other})
	if err == nil {
		f.also["gpus"] = 1
		if other != r.spec.Device {
			f.also["gpus"] = 2
		}
	}
	return f, err
}

// checkTokens has GPUs, one for each rank, and the CPU answer the same questions, and compares
// their tokens.
func checkTokens(ctx context.Context, r *rig, ranks []int) (f finding, err error) {
	err = r.alive("answering questions", func() error {
		dir, err := os.MkdirTemp("", "builtin-")
		if err != nil {
			return err
		}
		temporary := dir
		defer func() { _ = os.RemoveAll(temporary) }()
		if dir, err = model.Builtin(dir); err != nil {
			return err
		}
		m, err := model.Open(dir, model.Options{})
		if err != nil {
			return err
		}
		f, err = r.answers(ctx, m, ranks)
		return errors.Join(err, m.Close())
	})
	return f, err
}

func (r *rig) answers(ctx context.Context, m *model.Model, ranks []int) (f finding, err error) {
	text, err := chat.Load(filesOf(m))
	if err != nil {
		return f, err
	}
	var gpus, cpus []Answer
	var right float64
	var prompts [][]uint32
	var probes []recall.Probe
	for i := range questions {
		probe := recall.Draw(rand.New(rand.NewPCG(uint64(i), 4)), 3+2*(i%3), float64(i%4)/4)
		message, err := json.Marshal(map[string]string{"role": "user", "content": probe.Prompt()})
		if err != nil {
			return f, err
		}
		rendered, err := text.RenderChat(ctx, []json.RawMessage{message}, nil, nil, true)
		if err != nil {
			return f, err
		}
		prompts, probes = append(prompts, text.EncodeChat(rendered)), append(probes, probe)
	}
	if err := r.onGPU(ctx, m, ranks, func(b engine.Backend) (err error) {
		gpus, err = generate(ctx, b, prompts, m.EOS())
		return err
	}); err != nil {
		return f, fmt.Errorf("GPU: %w", err)
	}
	if err := onCPU(m, func(b engine.Backend) (err error) {
		cpus, err = generate(ctx, b, prompts, m.EOS())
		return err
	}); err != nil {
		return f, fmt.Errorf("CPU: %w", err)
	}
	for i := range prompts {
		said, should := text.Decode(gpus[i].Tokens), text.Decode(cpus[i].Tokens)
		if !slices.Equal(gpus[i].Tokens, cpus[i].Tokens) {
			return f, fmt.Errorf("question %d: the GPU says %q, the CPU %q", i, said, should)
		}
		if probes[i].Right(said) {
			right++
		}
	}
	f.also = map[string]float64{"questions": questions, "right_answers": right}
	f.golden = r.newGolden("tokens")
	f.golden.Answers = gpus
	return f, nil
}

func filesOf(m *model.Model) chat.Files {
	files := chat.Files{}
	for _, f := range m.Files() {
		files[f.Name] = f.Data
	}
	return files
}

// onGPU gives f a backend with ranks on devices.
func (r *rig) onGPU(ctx context.Context, m *model.Model, ranks []int, f func(b engine.Backend) error) error {
	d, err := gpu.OpenGroup(ctx, r.drv, ranks, gpu.DeviceOptions{})
	if err != nil {
		return err
	}
	closing := func() error { return d.Close(ctx) }
	w, err := d.Load(ctx, m)
	if err == nil {
		closing = func() error { return errors.Join(w.Close(ctx), d.Close(ctx)) }
		var b *gpu.Backend
		if b, err = w.NewBackend(ctx, gpu.Options{BlockSize: textBlock, MaxContext: textBlocks * textBlock, MaxTokens: 64, MaxSeqs: questions}); err == nil {
			err = errors.Join(withPool(b, f), b.Close())
		}
	}
	return errors.Join(err, closing())
}

// onCPU gives f a backend of one processor.
func onCPU(m *model.Model, f func(b engine.Backend) error) error {
	d, err := cpu.OpenDevice("cpu:0", cpu.DeviceOptions{Cores: 1})
	if err != nil {
		return err
	}
	w, err := d.Load(m)
	if err != nil {
		return errors.Join(err, d.Close())
	}
	b, err := w.NewBackend(cpu.Options{BlockSize: textBlock, KVDType: cpu.KVBF16})
	if err == nil {
		err = errors.Join(withPool(b, f), b.Close())
	}
	return errors.Join(err, w.Close(), d.Close())
}

func withPool(b engine.Backend, f func(b engine.Backend) error) error {
	pool, err := b.AllocKV(questions * textBlocks)
	if err != nil {
		return err
	}
	return errors.Join(f(b), pool.Close())
}

// generate computes greedy tokens after prompts: each prompt in two pieces, then all
// sequences together, token by token.
func generate(ctx context.Context, b engine.Backend, prompts [][]uint32, ends []uint32) ([]Answer, error) {
	vocab := b.Info().VocabSize
	out, logits := make([]Answer, len(prompts)), make([][]float32, len(prompts))
	var choices []engine.Choice // of a backend that makes them
	if _, chooses := b.(engine.Chooser); chooses {
		choices = make([]engine.Choice, len(prompts))
	}
	at := func(i int, tokens []uint32, start int) engine.BatchSeq {
		blocks := make([]int32, (start+len(tokens)-1)/textBlock+1)
		for k := range blocks {
			blocks[k] = int32(i*textBlocks + k)
		}
		s := engine.BatchSeq{Tokens: tokens, Start: start, Blocks: blocks, Logits: logits[i]}
		if choices != nil {
			choices[i] = engine.Choice{Sampling: &mostLikely}
			s.Choice = &choices[i]
		}
		return s
	}
	for i, p := range prompts {
		if len(p)+answerTokens > textBlocks*textBlock {
			return nil, fmt.Errorf("a prompt of %d tokens", len(p))
		}
		cut := len(p) / 3
		first := at(i, p[:cut], 0)
		logits[i] = make([]float32, vocab)
		for _, piece := range []engine.BatchSeq{first, at(i, p[cut:], cut)} {
			if err := b.Step(ctx, []engine.BatchSeq{piece}); err != nil {
				return nil, err
			}
		}
	}
	running := make([]bool, len(prompts))
	for i := range running {
		running[i] = true
	}
	for n := range answerTokens {
		var batch []engine.BatchSeq
		for i := range prompts {
			if !running[i] {
				continue
			}
			token := largest(logits[i])
			if choices != nil && choices[i].Token != token {
				return nil, fmt.Errorf("sequence %d: the device chooses token %d, and %d has the largest logit", i, choices[i].Token, token)
			}
			out[i].Tokens, out[i].Top = append(out[i].Tokens, token), append(out[i].Top, likely(logits[i]))
			if running[i] = !slices.Contains(ends, token); running[i] {
				batch = append(batch, at(i, out[i].Tokens[n:n+1], len(prompts[i])+n))
			}
		}
		if len(batch) == 0 {
			return out, nil
		}
		if err := b.Step(ctx, batch); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// largest is the index of the largest value, the first of several.
func largest(v []float32) (best uint32) {
	for i, x := range v {
		if x > v[best] {
			best = uint32(i)
		}
	}
	return best
}
