package grammar

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/tokenizer"
)

func loadTokenizer(t *testing.T, name string) *tokenizer.Tokenizer {
	t.Helper()
	file, err := os.ReadFile(filepath.Join("..", "tokenizer", "testdata", name+".tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// fromTokenizer takes the last special token for the end.
func fromTokenizer(t *testing.T, tok *tokenizer.Tokenizer) Vocabulary {
	t.Helper()
	for id := uint32(tok.VocabSize()); id > 0; id-- {
		if tok.IsSpecial(id - 1) {
			return FromTokenizer(tok, tok.VocabSize()+13, []uint32{id - 1})
		}
	}
	t.Fatal("no special token")
	return Vocabulary{}
}

// TestTokenizerFamilies decodes what is generated, as a client would see it.
func TestTokenizerFamilies(t *testing.T) {
	for name, drops := range map[string]bool{
		"qwen2-like": false, "llama3-like": false, "llama2-like": true, "gemma-like": false, "t5-like": true,
	} {
		t.Run(name, func(t *testing.T) {
			tok := loadTokenizer(t, name)
			v := fromTokenizer(t, tok)
			if got := len(v.First) > 0; got != drops {
				t.Errorf("first tokens differ: %v, want %v", got, drops)
			}
			c := newCompiler(t, v)
			for _, spec := range []Spec{
				{Kind: KindJSONObject},
				{Kind: KindChoice, Choices: []string{"a b", " a", "  ", "word", "the end é"}},
				{Kind: KindRegex, Text: `( ?[a-z]+){1,5} ?`},
			} {
				g, err := c.Compile(t.Context(), spec)
				if err != nil {
					t.Logf("%s: %v", spec.Kind, err) // the vocabulary is small
					continue
				}
				for seed := range uint64(40) {
					text, ids := generateTokens(t, g, rand.New(rand.NewPCG(seed, 1)), 12, func(m *Matcher, mask []uint64) {
						if seed%8 == 0 {
							bruteForce(t, m, mask)
						}
					})
					if got := tok.Decode(ids, true); got != text {
						t.Fatalf("decoded %q, generated %q", got, text)
					}
					switch spec.Kind {
					case KindJSONObject:
						if !json.Valid([]byte(text)) {
							t.Fatalf("%q is not JSON", text)
						}
					case KindChoice:
						if !slices.Contains(spec.Choices, text) {
							t.Fatalf("%q is no choice", text)
						}
					}
				}
			}
		})
	}
}

// TestLeadingSpace: a decoder that drops a space makes "▁yes" as good as "yes".
func TestLeadingSpace(t *testing.T) {
	v := bytesVocabulary(" yes", "yes", " ")
	v.First = map[uint32][]byte{256: []byte("yes"), ' ': {}, 258: {}}
	c := newCompiler(t, v)
	g := compile(t, c, Spec{Kind: KindChoice, Choices: []string{"yes", " yes"}})
	mask := make([]uint64, g.MaskLen())
	if err := g.NewMatcher().Mask(mask); err != nil || !has(mask, 256) || !has(mask, 257) || !has(mask, ' ') || !has(mask, 'y') {
		t.Errorf("first mask: %v", err)
	}
	bruteForce(t, g.NewMatcher(), mask)
	for _, tt := range []struct {
		tokens []uint32
		ok     bool
	}{
		{[]uint32{256}, true}, {[]uint32{257}, true}, {[]uint32{258, 257}, true}, {[]uint32{' ', 256}, true}, {[]uint32{258, ' ', 'y', 'e', 's'}, true},
		{[]uint32{258, 258, 256}, false}, {[]uint32{256, 256}, false},
	} {
		m := g.NewMatcher()
		if err := m.Replay(tt.tokens); (err == nil && m.Done()) != tt.ok {
			t.Errorf("%v: %v, done = %v", tt.tokens, err, m.Done())
		}
	}
}
