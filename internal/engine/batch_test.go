package engine

import (
	"errors"
	"testing"

	"github.com/dynctl/dynctl/internal/kvlayout"
)

// A batch is refused before a backend would index outside of its pool or its weights.
func TestCheckBatch(t *testing.T) {
	info := BackendInfo{VocabSize: 10, MaxContext: 8, KV: kvlayout.Shape{BlockSize: 4}}
	ids := func(n int) []uint32 { return make([]uint32, n) }
	mutual := func(start int, runs ...Span) BatchSeq {
		return BatchSeq{Tokens: ids(8 - start), Start: start, Blocks: []int32{0, 1}, Mutual: runs}
	}
	for _, tc := range []struct {
		what string
		s    BatchSeq
		ok   bool
	}{
		{"a block in full", BatchSeq{Tokens: ids(4), Blocks: []int32{0}}, true},
		{"one token more than the blocks", BatchSeq{Tokens: ids(5), Blocks: []int32{0}}, false},
		{"the first token of another block", BatchSeq{Tokens: ids(1), Start: 4, Blocks: []int32{0}}, false},
		{"the whole context, with the last block", BatchSeq{Tokens: ids(8), Blocks: []int32{2, 0}}, true},
		{"one token more than the context", BatchSeq{Tokens: ids(9), Blocks: []int32{0, 1, 2}}, false},
		{"before the start", BatchSeq{Tokens: ids(1), Start: -1, Blocks: []int32{0}}, false},
		{"positions in three dimensions", BatchSeq{Tokens: ids(1), Positions: new(Positions), Blocks: []int32{0}}, false},
		{"no token", BatchSeq{Blocks: []int32{0}}, false},
		{"a block behind the pool", BatchSeq{Tokens: ids(1), Blocks: []int32{3}}, false},
		{"a negative block", BatchSeq{Tokens: ids(1), Blocks: []int32{-1}}, false},
		{"a block behind the pool that is not needed", BatchSeq{Tokens: ids(1), Blocks: []int32{0, 3}}, true},
		{"the last token of the vocabulary", BatchSeq{Tokens: []uint32{9}, Blocks: []int32{0}}, true},
		{"a token behind the vocabulary", BatchSeq{Tokens: []uint32{10}, Blocks: []int32{0}}, false},
		{"room for all logits", BatchSeq{Tokens: ids(1), Blocks: []int32{0}, Logits: make([]float32, 10)}, true},
		{"no room for all logits", BatchSeq{Tokens: ids(1), Blocks: []int32{0}, Logits: make([]float32, 9)}, false},
		{"a mutual run", mutual(2, Span{1, 5}, Span{6, 8}), true},
		{"a mutual run that goes on", mutual(2, Span{5, 9}), false},
		{"a mutual run before the tokens", mutual(2, Span{0, 2}), false},
		{"an empty mutual run", mutual(2, Span{3, 3}), false},
		{"mutual runs that overlap", mutual(2, Span{3, 6}, Span{5, 8}), false},
		{"a mutual run before the sequence", mutual(2, Span{-1, 8}), false},
	} {
		info.Mutual = tc.s.Mutual != nil
		err := CheckBatch([]BatchSeq{{Tokens: ids(1), Blocks: []int32{0}}, tc.s}, info, 3)
		if (err == nil) != tc.ok || err != nil && !errors.Is(err, ErrBatch) {
			t.Errorf("%s: %v", tc.what, err)
		}
	}
	info.Mutual = false
	if err := CheckBatch([]BatchSeq{mutual(0, Span{0, 8})}, info, 3); !errors.Is(err, ErrBatch) {
		t.Errorf("a mutual run of a model without: %v", err)
	}
}
