package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// vectorNames are the recorded tokenizers in testdata.
var vectorNames = []string{"llama3-like", "qwen2-like", "llama2-like", "gemma-like", "t5-like", "added-edge"}

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func loadVector(t testing.TB, name string) *Tokenizer {
	t.Helper()
	tok, err := Load(readFile(t, name+".tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

type vectorFile struct {
	Encode []struct {
		Text               string   `json:"text"`
		IDs                []uint32 `json:"ids"`
		WithSpecial        []uint32 `json:"ids_with_special"`
		Decoded            string   `json:"decoded"`
		DecodedSkipSpecial string   `json:"decoded_skip_special"`
	} `json:"encode"`
	Decode []struct {
		IDs             []uint32 `json:"ids"`
		Text            string   `json:"text"`
		TextSkipSpecial string   `json:"text_skip_special"`
	} `json:"decode"`
}

func readVectors(t testing.TB, name string) (v vectorFile) {
	t.Helper()
	if err := json.Unmarshal(readFile(t, name+".vectors.json"), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestVectors(t *testing.T) {
	for _, name := range vectorNames {
		t.Run(name, func(t *testing.T) {
			tok := loadVector(t, name)
			v := readVectors(t, name)
			if len(v.Encode) == 0 || len(v.Decode) == 0 {
				t.Fatal("no vectors")
			}
			for _, x := range v.Encode {
				if got := tok.Encode(x.Text, false); !slices.Equal(got, x.IDs) {
					t.Errorf("Encode(%+q) = %v, want %v", x.Text, got, x.IDs)
				}
				if got := tok.Encode(x.Text, true); !slices.Equal(got, x.WithSpecial) {
					t.Errorf("Encode(%+q, special) = %v, want %v", x.Text, got, x.WithSpecial)
				}
				if got := tok.Decode(x.IDs, false); got != x.Decoded {
					t.Errorf("Decode(%v) = %+q, want %+q", x.IDs, got, x.Decoded)
				}
				if got := tok.Decode(x.WithSpecial, true); got != x.DecodedSkipSpecial {
					t.Errorf("Decode(%v, skip) = %+q, want %+q", x.WithSpecial, got, x.DecodedSkipSpecial)
				}
			}
			for _, x := range v.Decode {
				if got := tok.Decode(x.IDs, false); got != x.Text {
					t.Errorf("Decode(%v) = %+q, want %+q", x.IDs, got, x.Text)
				}
				if got := tok.Decode(x.IDs, true); got != x.TextSkipSpecial {
					t.Errorf("Decode(%v, skip) = %+q, want %+q", x.IDs, got, x.TextSkipSpecial)
				}
				for _, skip := range []bool{false, true} {
					if got, want := streamed(tok, x.IDs, skip), streamText(tok, x.IDs, skip); got != want {
						t.Errorf("stream of %v = %+q, want %+q", x.IDs, got, want)
					}
				}
			}
		})
	}
}

// streamed decodes ids one by one.
func streamed(tok *Tokenizer, ids []uint32, skip bool) string {
	s := tok.NewStream(skip)
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(s.Push(id))
	}
	b.WriteString(s.Flush())
	return b.String()
}

// streamText returns the text that a stream of ids must show. It is Decode's, except in a
// run of byte tokens that is not UTF-8 as a whole: its valid beginning stays and only the
// bytes after it are replaced. It applies that rule to the complete list of tokens, where
// the stream applies it as tokens come.
func streamText(tok *Tokenizer, ids []uint32, skip bool) string {
	at := slices.IndexFunc(tok.decoder, func(s decodeStep) bool { _, ok := s.(byteFallback); return ok })
	if at < 0 {
		return tok.Decode(ids, skip)
	}
	var out collector
	after := chain(tok.decoder[at+1:], &out)
	var run []byte
	flush := func() {
		rest := run
		for len(rest) > 0 {
			n, ok, _ := firstPart(rest)
			if !ok {
				break
			}
			rest = rest[n:]
		}
		if valid := string(run[:len(run)-len(rest)]); valid != "" {
			after.put(valid, true, true)
		}
		for range rest {
			after.put(replacement, true, true)
		}
		run = nil
	}
	before := chain(tok.decoder[:at], &tokenSink{token: func(token string) {
		if b, ok := fallbackByte(token); ok {
			run = append(run, b)
			return
		}
		flush()
		after.put(token, true, true)
	}})
	for _, id := range ids {
		if token, ok := tok.Token(id); ok && !(skip && tok.IsSpecial(id)) {
			before.put(token, true, true)
		}
	}
	before.close()
	flush()
	after.close()
	return string(out.out)
}

func chain(steps []decodeStep, end decodeSink) decodeSink {
	for i := len(steps) - 1; i >= 0; i-- {
		end = steps[i].open(end, true)
	}
	return end
}

// tokenSink is the end of a chain that looks at complete tokens.
type tokenSink struct {
	parts tokenParts
	token func(string)
}

func (k *tokenSink) put(s string, first, last bool) {
	if token, ok := k.parts.add(s, first, last); ok {
		k.token(token)
	}
}
func (*tokenSink) close() {}
