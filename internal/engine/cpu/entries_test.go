package cpu

import (
	"fmt"
	"testing"

	"github.com/dynctl/dynctl/internal/engine"
)

// Several entries of one sequence in a batch, as the engine makes them to score a
// prompt, give the bits of one step after the other: also across passes, and with
// other sequences between.
func TestEntriesOfOneSequence(t *testing.T) {
	for name, tt := range bitSpecs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := tt.open(t)
			tokens := prompt(9, min(tt.tokens, 300), m.TokenLimit())
			opts := Options{BlockSize: 16, KVDType: tt.kv}
			one, many := newRig(t, m, 1, 40, opts), newRig(t, m, 2, 40, opts)
			want, got := make([][]float32, len(tokens)), make([][]float32, len(tokens))
			for i := range tokens {
				want[i] = one.newLogits()
				one.step(t, engine.BatchSeq{Tokens: tokens[i : i+1], Start: i, Blocks: table(0, 20), Logits: want[i]})
			}
			for at := 0; at < len(tokens); {
				var batch []engine.BatchSeq
				for range 256 {
					if at == len(tokens) {
						break
					}
					got[at] = many.newLogits()
					batch = append(batch, engine.BatchSeq{Tokens: tokens[at : at+1], Start: at, Blocks: table(0, 20), Logits: got[at]})
					if at == 30 { // so many tokens that the next entries fall into another pass
						batch = append(batch, engine.BatchSeq{Tokens: prompt(1, otherTokens, m.TokenLimit()), Blocks: table(20, 20)})
					}
					at++
				}
				many.step(t, batch...)
			}
			for i := range want {
				sameBits(t, fmt.Sprint("position ", i), got[i], want[i])
			}
		})
	}
}

// otherTokens is the length of another sequence in the batch: with it and the
// entries a pass is full.
const otherTokens = 300
