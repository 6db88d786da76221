package cputest

import (
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/chat"
	"github.com/dynctl/dynctl/internal/engine/cpu"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/modeltest"
)

func TestGreedyIsRepeatable(t *testing.T) {
	for _, family := range []string{"llama", "qwen3"} {
		t.Run(family, func(t *testing.T) {
			dir := modeltest.Generate(t, modeltest.Spec{Family: family, KVHeads: 2, Tied: true})
			a, b := New(t, dir, cpu.Options{}), New(t, dir, cpu.Options{BlockSize: 3})
			first := a.Greedy([]uint32{1, 2, 3}, 40)
			if second := b.Greedy([]uint32{1, 2, 3}, 40); !slices.Equal(first, second) {
				t.Errorf("two runs give %v and %v", first, second)
			}
			other := a.Greedy([]uint32{2, 2, 3}, 40)
			if slices.Equal(first, other) {
				t.Error("another prompt gives the same text")
			}
			for _, ids := range [][]uint32{first, other} {
				if n := distinct(ids); n < 20 {
					t.Errorf("only %d different tokens among %d: %v", n, len(ids), ids)
				}
				for _, eos := range a.Model.EOS() {
					if slices.Contains(ids, eos) {
						t.Errorf("the end of a text after %d tokens", slices.Index(ids, eos))
					}
				}
			}
		})
	}
}

// TestBuiltinAnswersAsPyTorch compares prompts and greedy answers of the built-in model
// with those that scripts/demo-model/golden.py recorded with PyTorch: template, tokenizer,
// loader and backend agree with another implementation on every token.
func TestBuiltinAnswersAsPyTorch(t *testing.T) {
	var records []struct {
		Messages       []json.RawMessage
		Prompt, Answer []uint32
		Text           string
	}
	raw, err := os.ReadFile("testdata/builtin.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &records); err != nil {
		t.Fatal(err)
	}
	dir, err := model.Builtin(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := New(t, dir, cpu.Options{})
	files := chat.Files{}
	for _, f := range r.Model.Files() {
		files[f.Name] = f.Data
	}
	proc, err := chat.Load(files)
	if err != nil {
		t.Fatal(err)
	}
	tokens, prompted := 0, 0
	for i, rec := range records {
		rendered, err := proc.RenderChat(t.Context(), rec.Messages, nil, nil, true)
		if err != nil {
			t.Fatal(err)
		}
		if got := proc.EncodeChat(rendered); !slices.Equal(got, rec.Prompt) {
			t.Errorf("%d: the prompt is\n%v\nwant\n%v", i, got, rec.Prompt)
			continue
		}
		if got := r.Greedy(rec.Prompt, len(rec.Answer)); !slices.Equal(got, rec.Answer) {
			t.Errorf("%d, %q: got\n%v\nwant\n%v", i, rec.Text, got, rec.Answer)
		}
		tokens += len(rec.Answer)
		prompted = max(prompted, len(rec.Prompt))
	}
	if tokens < 100 || prompted < 1000 {
		t.Errorf("%d tokens of answers, the longest prompt has %d: run scripts/demo-model/golden.py", tokens, prompted)
	}
}

func distinct(ids []uint32) int {
	seen := make(map[uint32]bool)
	for _, id := range ids {
		seen[id] = true
	}
	return len(seen)
}
