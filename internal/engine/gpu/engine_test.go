package gpu_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/dynctl/dynctl/internal/chat"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/enginetest"
	"github.com/dynctl/dynctl/internal/engine/gpu"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/recall"
)

// builtin is the built-in model, whose answers do not hang on a rounding.
func builtin(t *testing.T) *model.Model {
	t.Helper()
	dir, err := model.Builtin(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return open(t, dir, model.Options{})
}

// questions are prompts about texts with facts, with the text that a right answer has.
func questions(t *testing.T, m *model.Model, n int) (prompts [][]uint32, answers []string, text *chat.Processor) {
	t.Helper()
	files := chat.Files{}
	for _, f := range m.Files() {
		files[f.Name] = f.Data
	}
	text, err := chat.Load(files)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		probe := recall.Draw(rand.New(rand.NewPCG(uint64(i), 4)), 3+2*(i%3), float64(i%4)/4)
		message, err := json.Marshal(map[string]string{"role": "user", "content": probe.Prompt()})
		if err != nil {
			t.Fatal(err)
		}
		rendered, err := text.RenderChat(t.Context(), []json.RawMessage{message}, nil, nil, true)
		if err != nil {
			t.Fatal(err)
		}
		prompts, answers = append(prompts, text.EncodeChat(rendered)), append(answers, probe.Answer)
	}
	return prompts, answers, text
}

// TestTokensOfTheCPU has the scheduler answer questions over both engines at once, greedy and
// drawn, in chunks, with drafts, and over two ranks: the tokens are the same.
func TestTokensOfTheCPU(t *testing.T) {
	m := builtin(t)
	n := 4
	if patience.RaceDetector { // arithmetic in one goroutine, which takes minutes with it
		n = 2
	}
	prompts, answers, text := questions(t, m, n)
	if patience.RaceDetector {
		for i, p := range prompts { // the end of a question, which has no right answer
			prompts[i] = p[len(p)-30:]
		}
	}
	drafts := cluster.Speculative{Method: cluster.SpeculativeNgram, LookupMin: 1}
	for name, cfg := range map[string]engine.Config{
		"batches":                    {NumBlocks: 300, MaxSeqs: 8, MaxBatchTokens: 64},
		"drafts, one after another":  {NumBlocks: 64, MaxSeqs: 1, Speculative: drafts},
		"batch-invariant, in chunks": {NumBlocks: 300, MaxSeqs: 4, MaxBatchTokens: 48},
		"two ranks":                  {NumBlocks: 300, MaxSeqs: 8, MaxBatchTokens: 64},
	} {
		if patience.RaceDetector && name != "batches" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := gpu.Options{BlockSize: blockSize, MaxContext: 1024, MaxTokens: 64, MaxSeqs: 3, BatchInvariant: name == "batch-invariant, in chunks"}
			ranks := []int{0}
			if name == "two ranks" {
				ranks = []int{0, 1}
			}
			g := enginetest.Start(t, newGroupRig(t, m, cfg.NumBlocks, o, ranks), cfg)
			c := enginetest.Start(t, newCPURig(t, m, cfg.NumBlocks, blockSize), cfg)
			right := 0
			type pair struct{ gpu, cpu *engine.Stream }
			var streams []pair
			for i, p := range prompts {
				r := engine.Request{ID: fmt.Sprint(i), Tokens: p, Stop: protocol.StopConditions{MaxTokens: 24, StopTokenIDs: m.EOS()}}
				if i%4 == 3 {
					r.Sampling = protocol.SamplingOptions{Temperature: 0.6, Seed: uint64(i), TopP: 0.9}
				}
				streams = append(streams, pair{enginetest.Submit(t, g, r), enginetest.Submit(t, c, r)})
			}
			for i, s := range streams {
				got, want := enginetest.Read(t, s.gpu), enginetest.Read(t, s.cpu)
				if !slices.Equal(got, want) {
					t.Errorf("question %d: %q, and the CPU's answer is %q", i, text.Decode(got), text.Decode(want))
				}
				if (recall.Probe{Answer: answers[i]}).Right(text.Decode(got)) {
					right++
				}
			}
			if right < len(prompts)-1 && !patience.RaceDetector { // one may be drawn wrong
				t.Errorf("%d of %d answers are right", right, len(prompts))
			}
			stats := g.Stats()
			if stats.AcceptedTokensTotal == 0 && cfg.Speculative.Enabled() {
				t.Errorf("it never happened: %+v", stats)
			}
		})
	}
}

// What requests change of logits, and what they allow, is done on the device as it is on the
// host with the same logits, whatever the others of a batch ask for: penalties, biases for
// every token (of which there is room for one row at a time), bad words, allowed ids, a
// grammar's masks.
func TestBentTokens(t *testing.T) {
	if patience.RaceDetector {
		t.Skip("arithmetic in one goroutine, which takes minutes; the package's other tests run with it")
	}
	m := builtin(t)
	prompts, _, text := questions(t, m, 8)
	for i, p := range prompts { // what follows is all the same to the test
		prompts[i] = p[len(p)-30:]
	}
	cfg := engine.Config{NumBlocks: 300, MaxSeqs: 8, MaxBatchTokens: 64}
	o := gpu.Options{BlockSize: blockSize, MaxContext: 1024, MaxTokens: 64, MaxSeqs: 8, BatchInvariant: true}
	rig := newRig(t, m, cfg.NumBlocks, o)
	counting := &countingRows{Backend: rig, Chooser: rig.Backend.(engine.Chooser)}
	device := enginetest.Start(t, counting, cfg)
	host := enginetest.Start(t, struct{ engine.Backend }{newRig(t, m, cfg.NumBlocks, o)}, cfg) // which is no Chooser
	limit := uint32(rig.Info().TokenLimit)
	var few []uint32
	for id := range limit {
		if id%3 == 1 {
			few = append(few, id)
		}
	}
	bend := []func(r *engine.Request){
		func(r *engine.Request) { r.Sampling.RepetitionPenalty = 1.4 },
		func(r *engine.Request) { r.Sampling.LogitBias = biases(limit) },
		func(r *engine.Request) {
			r.Sampling = protocol.SamplingOptions{Temperature: 1, Seed: 3, FrequencyPenalty: 1, PresencePenalty: -0.5}
		},
		func(r *engine.Request) { r.Sampling.AllowedTokenIDs = few },
		func(r *engine.Request) { r.Constraint = &once{limit: limit} },
		func(r *engine.Request) {
			r.Sampling.LogitBias, r.Sampling.RepetitionPenalty = biases(limit), 0.8
			r.Constraint, r.Sampling.AllowedTokenIDs = &once{limit: limit}, few
			r.Sampling.BadWords = [][]uint32{{few[4]}, {few[5], few[6]}}
		},
		func(*engine.Request) {},
		func(r *engine.Request) {
			r.Sampling.Temperature, r.Sampling.MinP, r.Sampling.LogitBias = 1, 0.1, biases(limit)
		},
	}
	type pair struct{ device, host *engine.Stream }
	var streams []pair
	for i, p := range prompts {
		ask := func(e *engine.Engine) *engine.Stream {
			r := engine.Request{ID: fmt.Sprint(i), Tokens: p, Stop: protocol.StopConditions{MaxTokens: 8}}
			bend[i](&r) // constraints are of one engine
			return enginetest.Submit(t, e, r)
		}
		streams = append(streams, pair{ask(device), ask(host)})
	}
	distinct := map[string]bool{}
	for i, s := range streams {
		got, want := enginetest.Read(t, s.device), enginetest.Read(t, s.host)
		if !slices.Equal(got, want) || len(got) != 8 {
			t.Errorf("request %d: %q, and the host chooses %q", i, text.Decode(got), text.Decode(want))
		}
		distinct[text.Decode(got)] = true
	}
	if len(distinct) < 5 || counting.logits.Load() > 0 || counting.choices.Load() < 8*8 {
		t.Errorf("%d different answers, %d choices, and %d rows of logits", len(distinct), counting.choices.Load(), counting.logits.Load())
	}
}

// biases are for every token.
func biases(limit uint32) (all []protocol.TokenBias) {
	for id := range limit {
		all = append(all, protocol.TokenBias{Token: id, Bias: float32(id%7) / 2})
	}
	return all
}

// once is a constraint that lets each token come once, and only every second one.
type once struct {
	limit uint32
	had   []uint32
}

func (c *once) Mask(dst []uint64) error {
	for id := uint32(1); id < c.limit; id += 2 {
		if !slices.Contains(c.had, id) {
			dst[id/64] |= 1 << (id % 64)
		}
	}
	return nil
}

func (c *once) Accept(token uint32) error {
	c.had = append(c.had, token)
	return nil
}

func (*once) Done() bool { return false }

// countingRows counts what a backend is asked for.
type countingRows struct {
	engine.Backend
	engine.Chooser
	logits, choices atomic.Int64
}

func (c *countingRows) Step(ctx context.Context, batch []engine.BatchSeq) error {
	for i := range batch {
		if batch[i].Logits != nil {
			c.logits.Add(1)
		}
		if batch[i].Choice != nil {
			c.choices.Add(1)
		}
	}
	return c.Backend.Step(ctx, batch)
}
