package grammar

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/model/minitok"
)

// bytesVocabulary is the 256 bytes, then the given tokens, then an end id.
func bytesVocabulary(more ...string) Vocabulary {
	var v Vocabulary
	for b := range 256 {
		v.Tokens = append(v.Tokens, []byte{byte(b)})
	}
	for _, m := range more {
		v.Tokens = append(v.Tokens, []byte(m))
	}
	v.EOS = []uint32{uint32(len(v.Tokens))}
	v.Tokens = append(v.Tokens, nil)
	return v
}

// randomVocabulary adds tokens that look like pieces of JSON, of words, and of
// characters of several bytes, cut anywhere.
func randomVocabulary(r *rand.Rand, n int) Vocabulary {
	const text = `{"name": "é€😀 ok", "list": [1, 2.5, -30, {"a":null}], "x":{}, "true":false}` + "\n\t  \\n\\\"\\u00e9 ab aab 1234567890"
	var more []string
	for range n {
		at := r.IntN(len(text) - 8)
		piece := text[at : at+1+r.IntN(7)]
		if r.IntN(4) == 0 {
			piece += text[r.IntN(len(text)-4):][:r.IntN(4)]
		}
		more = append(more, piece)
	}
	return bytesVocabulary(more...)
}

// minitokVocabulary is that of the built-in tokenizer.
func minitokVocabulary(t testing.TB) Vocabulary {
	t.Helper()
	tok, err := minitok.Load(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	v := Vocabulary{}
	for id, p := range tok.Pieces() {
		text := []byte(p.Text)
		if p.Special {
			text = nil
			v.EOS = append(v.EOS, uint32(id))
		}
		v.Tokens = append(v.Tokens, text)
	}
	return v
}

// largeVocabulary resembles those of present models: words with and without a
// space, numbers, punctuation, code, and characters of all lengths, some cut.
func largeVocabulary(n int) Vocabulary {
	r := rand.New(rand.NewPCG(1, 2))
	v := Vocabulary{}
	seen := map[string]bool{}
	add := func(s string) {
		if s != "" && !seen[s] && len(v.Tokens) < n-1 {
			seen[s] = true
			v.Tokens = append(v.Tokens, []byte(s))
		}
	}
	for b := range 256 {
		add(string([]byte{byte(b)}))
	}
	for i := range 1100 {
		add(strings.Repeat(" ", i%80))
		add([]string{"\n", "\n\n", "\t", "\r\n"}[i%4] + strings.Repeat(" ", i%30))
	}
	for i := range 1000 {
		add(string([]byte{'0' + byte(i/100), '0' + byte(i/10%10), '0' + byte(i%10)}))
		add(string([]byte{'0' + byte(i/10%10), '0' + byte(i%10)}))
	}
	marks := []string{`"`, `",`, `":`, `": "`, `"}`, `"]`, `{`, `}`, `[`, `]`, `},`, `\`, `\n`, `\"`, `//`, `(`, `)`, `;`, `=`, `<`, `>`, `.`, `_`, `-`, `'`, `,`, `:`}
	for range 12_000 {
		s := ""
		for range 1 + r.IntN(4) {
			s += marks[r.IntN(len(marks))]
		}
		add(s)
	}
	letters := "eeettaaooinnshrrdlucmfwypvbgkqjxz"
	for len(v.Tokens) < n-1 {
		var b strings.Builder
		if r.IntN(2) == 0 {
			b.WriteByte(' ')
		}
		switch r.IntN(10) {
		case 0:
			for range 1 + r.IntN(3) {
				b.WriteRune(rune(0x4E00 + r.IntN(20_000)))
			}
		case 1:
			for range 1 + r.IntN(6) {
				b.WriteRune(rune(0x400 + r.IntN(256)))
			}
		case 2:
			s := string(rune(0x1F300+r.IntN(1500))) + string(rune(0x600+r.IntN(256)))
			b.WriteString(s[:1+r.IntN(len(s))])
		default:
			for range 2 + r.IntN(10) {
				b.WriteByte(letters[r.IntN(len(letters))])
			}
		}
		s := b.String()
		if r.IntN(5) == 0 {
			s = strings.ToUpper(s[:1]) + s[1:]
		}
		add(s)
	}
	v.EOS = []uint32{uint32(len(v.Tokens))}
	v.Tokens = append(v.Tokens, nil)
	return v
}

func newCompiler(t testing.TB, v Vocabulary) *Compiler {
	t.Helper()
	c, err := NewCompiler(v, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func compile(t testing.TB, c *Compiler, s Spec) *Grammar {
	t.Helper()
	g, err := c.Compile(t.Context(), s)
	if err != nil {
		t.Fatalf("%+v: %v", s, err)
	}
	return g
}

func has(mask []uint64, id uint32) bool { return mask[id/64]>>(id%64)&1 == 1 }
