package tokenizer

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// TestFewestTokens: the bound of a long word is never more than its tokens, and not much
// less: it is what keeps a text that cannot fit from being merged.
func TestFewestTokens(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	letters := []rune("abcdefghijklmnopqrstuvwxyz     \n\n\té文字是😀.,;0123456789ABC")
	for _, name := range []string{"qwen2-like", "llama3-like", "llama2-like", "gemma-like", "t5-like"} {
		raw, err := os.ReadFile(filepath.Join("testdata", name+".tokenizer.json"))
		if err != nil {
			t.Fatal(err)
		}
		tok, err := Load(raw)
		if err != nil {
			t.Fatal(err)
		}
		at, whole := (*unigram)(nil).longestAt, map[string]uint32{}
		switch m := tok.model.(type) {
		case *bpe:
			at, whole = m.longestAt, m.whole
		case *unigram:
			at, whole = m.longestAt, m.ids
		}
		words := make([]string, 0, len(whole))
		for w := range whole {
			if utf8.ValidString(w) {
				words = append(words, w)
			}
		}
		slices.Sort(words)
		var bounds, tokens int
		for range 300 {
			var b strings.Builder
			for range 1 + rng.IntN(60) {
				if rng.IntN(3) == 0 {
					b.WriteRune(letters[rng.IntN(len(letters))])
				} else {
					b.WriteString(words[rng.IntN(len(words))])
				}
			}
			e := &encoder{t: tok}
			tok.model.encode(e, b.String())
			n := fewestTokens(b.String(), 1<<20, at)
			if bounds, tokens = bounds+n, tokens+len(e.ids); n > len(e.ids) {
				t.Fatalf("%s: %q has %d tokens, and at least %d", name, b.String(), len(e.ids), n)
			}
		}
		if bounds < tokens/3 {
			t.Errorf("%s: texts of %d tokens have at least %d", name, tokens, bounds)
		}
	}
}

// TestLongWordStops: a word of ten times as many tokens as allowed is not merged, though by
// the longest token of the vocabulary it might fit.
func TestLongWordStops(t *testing.T) {
	for _, name := range []string{"qwen2-like", "llama3-like", "t5-like"} {
		raw, err := os.ReadFile("testdata/" + name + ".tokenizer.json")
		if err != nil {
			t.Fatal(err)
		}
		tok, err := Load(raw)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Repeat("wurbl", 2*countFrom)
		most := len(tok.Encode(text, false)) / 10
		e := tok.encoders.New().(*encoder)
		e.limited, e.most = true, most
		e.text(text)
		if !errors.Is(e.err, ErrTooManyTokens) || len(e.symbols.ids)+len(e.lattice) > 0 {
			t.Errorf("%s: %v, with %d symbols and a lattice of %d", name, e.err, len(e.symbols.ids), len(e.lattice))
		}
	}
}

// TestShrinkage: no text becomes shorter by a normal form than shrinkage says. What one
// character comes from is at most what its decomposition comes from, part by part.
func TestShrinkage(t *testing.T) {
	for _, form := range []norm.Form{norm.NFC, norm.NFD, norm.NFKC, norm.NFKD} {
		decompose := norm.NFD
		if form == norm.NFKC || form == norm.NFKD {
			decompose = norm.NFKD
		}
		from := map[rune]int{} // the most bytes of a text that this character can come from
		for r := rune(1); r <= unicode.MaxRune; r++ {
			if !utf8.ValidRune(r) {
				continue
			}
			parts := []rune(decompose.String(string(r)))
			for _, p := range parts { // each gets an equal share
				from[p] = max(from[p], (utf8.RuneLen(r)+len(parts)-1)/len(parts))
			}
		}
		worst := 0
		for r := rune(1); r <= unicode.MaxRune; r++ {
			if !utf8.ValidRune(r) || form.String(string(r)) != string(r) {
				continue
			}
			bytes := 0
			for _, p := range decompose.String(string(r)) {
				bytes += from[p]
			}
			worst = max(worst, (bytes+utf8.RuneLen(r)-1)/utf8.RuneLen(r))
		}
		if got := shrinkage(unicodeForm(form)); got < worst || got > worst+1 {
			t.Errorf("form %d: %d bytes become one at most, not %d", form, worst, got)
		}
	}
}
