package gpu_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/dynctl/dynctl/internal/chat"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/gpu"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/recall"
)

// startEngine runs the scheduler over a backend until the end of the test, and proves that
// no block is left in use.
func startEngine(t *testing.T, b engine.Backend, cfg engine.Config) *engine.Engine {
	t.Helper()
	e, err := engine.New(cfg, b)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel(errors.New("test over"))
		<-ended
		if err := e.Check(context.Background(), true); err != nil {
			t.Error(err)
		}
	})
	return e
}

func submit(t *testing.T, e *engine.Engine, r engine.Request) *engine.Stream {
	t.Helper()
	s, err := e.Submit(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// read reads a stream to its end.
func read(t *testing.T, s *engine.Stream) (tokens []uint32) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		o, err := s.Next(ctx)
		if errors.Is(err, io.EOF) {
			return tokens
		}
		if err = errors.Join(err, o.Err); err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, o.Tokens...)
	}
}

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
// drawn, in chunks, and with drafts: the tokens are the same.
func TestTokensOfTheCPU(t *testing.T) {
	m := builtin(t)
	n := 7
	if raceDetector { // arithmetic in one goroutine, which takes minutes with it
		n = 2
	}
	prompts, answers, text := questions(t, m, n)
	drafts := cluster.Speculative{Method: cluster.SpeculativeNgram, LookupMin: 1}
	for name, cfg := range map[string]engine.Config{
		"batches":                    {NumBlocks: 300, MaxSeqs: 8, MaxBatchTokens: 64},
		"drafts, one after another":  {NumBlocks: 64, MaxSeqs: 1, Speculative: drafts},
		"batch-invariant, in chunks": {NumBlocks: 300, MaxSeqs: 4, MaxBatchTokens: 48},
	} {
		if raceDetector && name != "batches" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := gpu.Options{BlockSize: blockSize, MaxContext: 1024, MaxTokens: 64, MaxSeqs: 6, BatchInvariant: name == "batch-invariant, in chunks"}
			g := startEngine(t, newRig(t, m, cfg.NumBlocks, o), cfg)
			c := startEngine(t, newCPURig(t, m, cfg.NumBlocks, blockSize), cfg)
			var wg sync.WaitGroup
			defer wg.Wait()
			right := 0
			type pair struct{ gpu, cpu *engine.Stream }
			var streams []pair
			for i, p := range prompts {
				r := engine.Request{ID: fmt.Sprint(i), Tokens: p, Stop: protocol.StopConditions{MaxTokens: 24, StopTokenIDs: m.EOS()}}
				if i%4 == 3 {
					r.Sampling = protocol.SamplingOptions{Temperature: 0.6, Seed: uint64(i), TopP: 0.9}
				}
				streams = append(streams, pair{submit(t, g, r), submit(t, c, r)})
			}
			for i, s := range streams {
				got, want := read(t, s.gpu), read(t, s.cpu)
				if !slices.Equal(got, want) {
					t.Errorf("question %d: %q, and the CPU's answer is %q", i, text.Decode(got), text.Decode(want))
				}
				if (recall.Probe{Answer: answers[i]}).Right(text.Decode(got)) {
					right++
				}
			}
			if right < len(prompts)-1 { // one may be drawn wrong
				t.Errorf("%d of %d answers are right", right, len(prompts))
			}
			stats := g.Stats()
			if stats.AcceptedTokensTotal == 0 && cfg.Speculative.Enabled() {
				t.Errorf("it never happened: %+v", stats)
			}
		})
	}
}
