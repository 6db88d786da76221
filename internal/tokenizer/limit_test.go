package tokenizer

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestEncodeLimit: with every kind of tokenizer, a text that has as many tokens as
// allowed is encoded as ever, and one with more is not.
func TestEncodeLimit(t *testing.T) {
	files, err := filepath.Glob("testdata/*.tokenizer.json")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	texts := []string{
		"", "a", "The quick  brown fox\n\n jumps 123456 times, doesn't it?", strings.Repeat("a", 3000), strings.Repeat("Ünïcödé 😀 文字 ", 60),
		strings.Repeat(" ", 500), strings.Repeat("\n \t", 200),
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			raw, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			tok, err := Load(raw)
			if err != nil {
				t.Skip(err)
			}
			for _, text := range texts {
				want := tok.Encode(text, true)
				if n := tok.FewestTokens(len(text)); n > len(want) {
					t.Errorf("%.20q has %d tokens, and at least %d", text, len(want), n)
				}
				prefix := []uint32{7}
				got, err := tok.EncodeLimit(prefix, text, true, len(want))
				if errors.Is(err, ErrTooManyTokens) || !slices.Equal(got[1:], want) || got[0] != 7 {
					t.Errorf("%.20q with a limit of %d: %v, %d tokens", text, len(want), err, len(got)-1)
				}
				for _, most := range []int{len(want) - 1, len(want) / 2, 0} {
					if most < 0 || most >= len(want) {
						continue
					}
					if _, err := tok.EncodeLimit(nil, text, true, most); !errors.Is(err, ErrTooManyTokens) {
						t.Errorf("%.20q, %d tokens, with a limit of %d: %v", text, len(want), most, err)
					}
				}
			}
		})
	}
}

// TestEncodeStops: a long text costs as much as what is kept of it.
func TestEncodeStops(t *testing.T) {
	for _, name := range []string{"qwen2-like", "llama3-like", "llama2-like", "gemma-like"} {
		raw, err := os.ReadFile("testdata/" + name + ".tokenizer.json")
		if err != nil {
			t.Fatal(err)
		}
		tok, err := Load(raw)
		if err != nil {
			t.Fatal(err)
		}
		if tok.longest == 0 {
			t.Errorf("%s: it cannot be told how much of a text a token stands for", name)
			continue
		}
		e := tok.encoders.New().(*encoder)
		for text, most := range map[string]int{strings.Repeat("word and word, ", 100_000): 5_000, strings.Repeat("x", 1<<20): 5_000} {
			e.limited, e.most = true, 1000
			e.text(text)
			if !errors.Is(e.err, ErrTooManyTokens) || e.pieces > most || len(e.symbols.ids) > most {
				t.Errorf("%s: %v after %d pieces and a word of %d symbols", name, e.err, e.pieces, len(e.symbols.ids))
			}
			*e = encoder{t: tok}
		}
	}
}

// TestPatternTime: a pattern that backtracks without end has an end all the same, and
// the text is not taken for one that was split.
func TestPatternTime(t *testing.T) {
	tok, err := Load([]byte(`{"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]},
		"pre_tokenizer":{"type":"Split","pattern":{"Regex":"(a|aa|a+)+c"},"behavior":"Isolated"}}`))
	if err != nil {
		t.Fatal(err)
	}
	tok.preTokenizers[0].(*splitStep).finder.(regexFinder).re.MatchTimeout = 1 // nanosecond
	if _, err := tok.EncodeLimit(nil, strings.Repeat("a", 3000)+"b", true, 10_000); !errors.Is(err, ErrPatternTimeout) {
		t.Errorf("a text that cannot be split: %v", err)
	}
	if matchTimeout > textTimeout || textTimeout.Seconds() > 10 {
		t.Errorf("a text may take %v", textTimeout)
	}
}
