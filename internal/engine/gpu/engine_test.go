package gpu_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/chat"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/enginetest"
	"github.com/dynctl/dynctl/internal/engine/gpu"
	"github.com/dynctl/dynctl/internal/model"
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
			g := enginetest.Start(t, newRig(t, m, cfg.NumBlocks, o), cfg)
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
