package cputest

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dynctl/dynctl/internal/engine/cpu"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/minitok"
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

// TestBuiltinSpeaks checks that the built-in model writes words and does not
// repeat itself all the time.
func TestBuiltinSpeaks(t *testing.T) {
	dir, err := model.Builtin(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := New(t, dir, cpu.Options{})
	tok, err := minitok.Load(r.Model.Config().Vocab)
	if err != nil {
		t.Fatal(err)
	}
	pieces := tok.Pieces()
	turn, _ := tok.ID(minitok.TurnStart)
	for seed := range uint32(3) {
		ids := r.Greedy([]uint32{turn, 300 + seed, 600, 700 + seed, turn}, 120)
		var text strings.Builder
		words := 0
		for _, id := range ids {
			text.WriteString(pieces[id].Text)
			if pieces[id].Count > 0 {
				words++
			}
		}
		t.Logf("%q", text.String())
		if !utf8.ValidString(text.String()) || words < 110 {
			t.Errorf("%d of 120 tokens are words: %q", words, text.String())
		}
		if n := distinct(ids); n < 40 {
			t.Errorf("only %d different tokens", n)
		}
	}
}

func distinct(ids []uint32) int {
	seen := make(map[uint32]bool)
	for _, id := range ids {
		seen[id] = true
	}
	return len(seen)
}
