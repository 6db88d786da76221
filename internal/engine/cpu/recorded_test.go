package cpu

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/model/modeltest"
)

// recordedSpecs are the models of testdata/recorded.json. Their weights are the
// same everywhere, see the synthetic models' own tests, so another engine's
// results stay valid.
func recordedSpecs() map[string]modeltest.Spec {
	llama := modeltest.Spec{Family: "llama", Layers: 3, Hidden: 256, Heads: 8, KVHeads: 2, HeadDim: 32, FFN: 512}
	llama3 := modeltest.Spec{Family: "llama", Layers: 3, Hidden: 256, Heads: 4, KVHeads: 4, HeadDim: 64, FFN: 512,
		RopeScaling: llama3Scaling()}
	qwen3 := modeltest.Spec{Family: "qwen3", Layers: 4, Hidden: 128, Heads: 4, KVHeads: 2, HeadDim: 64, FFN: 384}
	tied, yarn, linear := qwen3, qwen3, qwen3
	tied.Tied = true
	yarn.RopeScaling = map[string]any{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
	linear.RopeScaling = map[string]any{"rope_type": "linear", "factor": 4.0}
	return map[string]modeltest.Spec{"llama": llama, "llama3": llama3, "qwen3": tied, "qwen3yarn": yarn, "qwen3linear": linear}
}

// TestRecorded compares probabilities with those that llama.cpp computed from the
// same weights: an implementation that shares nothing with this one. Its largest
// difference over all tokens was 6e-5; 5e-4 is the bound.
func TestRecorded(t *testing.T) {
	raw, err := os.ReadFile("testdata/recorded.json")
	if err != nil {
		t.Fatal(err)
	}
	var recorded struct {
		Tokens []uint32
		Models map[string][]struct {
			Position int
			Top      []struct {
				ID          int
				Probability float64
			}
		}
	}
	if err := json.Unmarshal(raw, &recorded); err != nil {
		t.Fatal(err)
	}
	for name, spec := range recordedSpecs() {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, modeltest.Open(t, spec), 2, 10, Options{BlockSize: 16})
			if len(recorded.Models[name]) == 0 {
				t.Fatal("no recorded positions")
			}
			logits, at := r.newLogits(), 0
			for _, want := range recorded.Models[name] {
				end := want.Position + 1
				r.step(t, engine.BatchSeq{Tokens: recorded.Tokens[at:end], Start: at, Blocks: table(0, 10), Logits: logits})
				at = end
				got := probabilities(logits)
				for _, top := range want.Top {
					if math.Abs(got[top.ID]-top.Probability) > 5e-4 {
						t.Errorf("position %d: token %d has probability %v, want %v", want.Position, top.ID, got[top.ID], top.Probability)
					}
				}
			}
		})
	}
}

func probabilities(logits []float32) []float64 {
	top, sum := math.Inf(-1), 0.0
	for _, l := range logits {
		top = max(top, float64(l))
	}
	out := make([]float64, len(logits))
	for i, l := range logits {
		out[i] = math.Exp(float64(l) - top)
		sum += out[i]
	}
	for i := range out {
		out[i] /= sum
	}
	return out
}
