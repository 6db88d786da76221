package tokenizer

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/patience"
)

// naiveMerge is byte-pair encoding as its definition reads.
func naiveMerge(merges *pairTable, ids []uint32) []uint32 {
	ids = slices.Clone(ids)
	for {
		at, best := -1, uint64(noPair)
		for i := 1; i < len(ids); i++ {
			if p := merges.get(ids[i-1], ids[i]); p>>32 < best>>32 {
				at, best = i-1, p
			}
		}
		if at < 0 {
			return ids
		}
		ids[at] = uint32(best)
		ids = slices.Delete(ids, at+1, at+2)
	}
}

// randomBPE is a model over a few letters whose merges come in any order, also
// before the merges that make their parts.
func randomBPE(t *testing.T, r *rand.Rand, change func(*bpeJSON)) *bpe {
	t.Helper()
	tokens := []string{"a", "b", "c", "d", "é"}
	var merges [][2]string
	for len(tokens) < 40 {
		x, y := tokens[r.IntN(len(tokens))], tokens[r.IntN(len(tokens))]
		if !slices.Contains(tokens, x+y) {
			tokens = append(tokens, x+y)
		}
		if !slices.Contains(merges, [2]string{x, y}) {
			merges = append(merges, [2]string{x, y})
		}
	}
	r.Shuffle(len(merges), func(i, j int) { merges[i], merges[j] = merges[j], merges[i] })
	var entries []vocabEntry
	for i, s := range append(tokens, "?") {
		entries = append(entries, vocabEntry{s, uint32(i)})
	}
	unknown := "?"
	j := bpeJSON{UnkToken: &unknown}
	if change != nil {
		change(&j)
	}
	m, err := newBPE(j, entries, merges)
	if err != nil {
		t.Fatal(err)
	}
	m.findWhole(entries)
	return m
}

func TestMergeMatchesDefinition(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 100 {
		m := randomBPE(t, r, nil)
		for range 20 {
			var b symbolBuf
			for range r.IntN(80) {
				b.ids = append(b.ids, uint32(r.IntN(5)))
			}
			want := naiveMerge(m.merges, b.ids)
			long := symbolBuf{ids: slices.Clone(b.ids)}
			if len(b.ids) > 1 {
				if got := long.mergeLong(m.merges, nil); !slices.Equal(got, want) {
					t.Fatalf("mergeLong(%v) = %v, want %v", b.ids, got, want)
				}
				short := symbolBuf{ids: slices.Clone(b.ids)}
				if got := short.mergeShort(m.merges, nil); !slices.Equal(got, want) {
					t.Fatalf("mergeShort(%v) = %v, want %v", b.ids, got, want)
				}
			}
			if got := b.merge(m.merges, []uint32{7}); !slices.Equal(got, append([]uint32{7}, want...)) {
				t.Fatalf("merge(%v) = %v, want 7 and %v", b.ids, got, want)
			}
		}
	}
}

// TestCutMatchesWhole compares encoding with cuts and word lookups against
// merging the text as one word.
func TestCutMatchesWhole(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	yes := true
	for i := range 100 {
		m := randomBPE(t, r, func(j *bpeJSON) {
			if i%2 == 0 {
				j.FuseUnk = &yes
			}
		})
		for range 20 {
			var text strings.Builder
			for range r.IntN(60) {
				text.WriteString([]string{"a", "b", "c", "d", "é", "☃"}[r.IntN(6)])
			}
			var whole symbolBuf
			m.runeSymbols(&whole, text.String())
			want := naiveMerge(m.merges, whole.ids)
			e := &encoder{}
			m.encodeRunes(e, text.String())
			if !slices.Equal(e.ids, want) {
				t.Fatalf("encodeRunes(%q) = %v, want %v", text.String(), e.ids, want)
			}
		}
	}
}

// TestNoQuadraticCase feeds inputs that make a careless implementation take
// time quadratic in the text: at this size that is minutes to hours. The race
// detector makes the package too slow for that and has nothing to find here.
func TestNoQuadraticCase(t *testing.T) {
	if patience.RaceDetector {
		t.Skip("too slow under the race detector")
	}
	const n = 1 << 17
	texts := map[string]string{
		"letters": strings.Repeat("a", n), "spaces": strings.Repeat(" ", n), "newlines": strings.Repeat("\n", n), "marks": strings.Repeat("!", n),
		"digits": strings.Repeat("1", n), "combining": "e" + strings.Repeat("\u0301", n/8), "words": strings.Repeat("the ", n/4),
		"unknown": strings.Repeat("☃", n/4), "line ends": strings.Repeat(" \n", n/2), "quotes": strings.Repeat("'", n), "open": strings.Repeat("<", n),
	}
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			tok, err := Load(v.file(t))
			if err != nil {
				t.Fatal(err)
			}
			for name, text := range texts {
				start := time.Now()
				ids, err := tok.EncodeChecked(nil, text, false)
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				tok.Decode(ids, false)
				if d := time.Since(start); d > 20*time.Second {
					t.Errorf("%s: took %v", name, d)
				}
			}
		})
	}
	t.Run("added", func(t *testing.T) {
		f := smallFile()
		for i, s := range []string{" ", "  ", "   "} {
			addToken(f, object{"id": 300 + i, "content": s, "lstrip": true, "rstrip": true, "normalized": false})
		}
		addToken(f, object{"id": 310, "content": strings.Repeat("x", 1000) + "y", "normalized": false})
		tok, err := Load(marshal(t, f))
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		tok.Encode(texts["spaces"], false)
		tok.Encode(strings.Repeat("x", n), false)
		if d := time.Since(start); d > 20*time.Second {
			t.Errorf("took %v", d)
		}
	})
}

func TestEncodeReportsUnknownText(t *testing.T) {
	m := smallFile()
	m["pre_tokenizer"] = nil // characters outside the vocabulary reach the model
	tok, err := Load(marshal(t, m))
	if err != nil {
		t.Fatal(err)
	}
	ids, err := tok.EncodeChecked([]uint32{1}, "he☃ll", false)
	if !errors.Is(err, ErrUnknownText) || !slices.Equal(ids, []uint32{1, 258}) { // as if it were not there
		t.Errorf("EncodeChecked = %v, %v; want [1 258], %v", ids, err, ErrUnknownText)
	}
	u := smallFile()
	u["model"], u["added_tokens"], u["post_processor"], u["pre_tokenizer"] = object{"type": "Unigram", "vocab": []any{[]any{"a", -1}, []any{"b", -2}}}, nil, nil, nil
	if tok, err = Load(marshal(t, u)); err != nil {
		t.Fatal(err)
	}
	if ids, err = tok.EncodeChecked(nil, "axb", false); !errors.Is(err, ErrUnknownText) || !slices.Equal(ids, []uint32{0, 1}) {
		t.Errorf("EncodeChecked = %v, %v; want [0 1], %v", ids, err, ErrUnknownText)
	}
}
