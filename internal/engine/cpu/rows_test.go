package cpu

import (
	"math"
	"testing"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/model/modeltest"
)

// Embeddings in place of tokens are computed as the tokens' own would be, bit by bit, however
// the prompt is cut; other ones give other logits.
func TestRows(t *testing.T) {
	m := modeltest.Open(t, modeltest.Spec{})
	const n = 600 // more than one pass
	tokens := prompt(1, n, 200)
	for _, cores := range []int{1, 2} {
		r := newRig(t, m, cores, 100, Options{BlockSize: 16})
		rows := make([][]float32, n)
		hidden := make([]uint32, n)
		copy(hidden, tokens)
		for i := range rows {
			if i%5 != 0 && i > 10 {
				rows[i] = append([]float32(nil), r.weights.embed.widen(make([]float32, r.Info().Embedding), int(tokens[i]))...)
				hidden[i] = 3
			}
		}
		want, got := r.newLogits(), r.newLogits()
		r.step(t, engine.BatchSeq{Tokens: tokens, Blocks: table(0, 40), Logits: want})
		r.step(t, engine.BatchSeq{Tokens: hidden, Rows: rows, Blocks: table(40, 40), Logits: got})
		sameBits(t, "at once", got, want)
		clear(got)
		r.step(t, engine.BatchSeq{Tokens: hidden[:77], Rows: rows[:77], Blocks: table(40, 40)})
		r.step(t, engine.BatchSeq{Tokens: hidden[77:], Rows: rows[77:], Start: 77, Blocks: table(40, 40), Logits: got})
		sameBits(t, "in chunks", got, want)
		rows[12][3] += 0.5
		r.step(t, engine.BatchSeq{Tokens: hidden, Rows: rows, Blocks: table(40, 40), Logits: got})
		same := true
		for i := range got {
			same = same && math.Float32bits(got[i]) == math.Float32bits(want[i])
		}
		if same {
			t.Error("another embedding gives the same logits")
		}
	}
}
