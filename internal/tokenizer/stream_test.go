package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestStreamMatchesDecode pushes random ids in random portions.
func TestStreamMatchesDecode(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			tok, err := Load(v.file(t))
			if err != nil {
				t.Fatal(err)
			}
			m := newTextMaker(seed, tok)
			s, skipping := tok.NewStream(false), tok.NewStream(true)
			for range 300 {
				ids := slices.Concat(m.ids(tok), tok.Encode(m.text(), true), m.ids(tok))
				for skip, s := range map[bool]*Stream{false: s, true: skipping} { // reused after Flush
					var b strings.Builder
					for rest := ids; len(rest) > 0; {
						n := 1 + m.r.IntN(min(4, len(rest)))
						b.WriteString(s.Push(rest[:n]...))
						rest = rest[n:]
					}
					b.WriteString(s.Flush())
					if want := streamText(tok, ids, skip); b.String() != want {
						t.Fatalf("stream of %v, skip %v: %+q, want %+q", ids, skip, b.String(), want)
					}
				}
			}
		})
	}
}

// TestStreamDeltas covers what each push may show.
func TestStreamDeltas(t *testing.T) {
	cases := []struct {
		name, tokenizer string
		tokens          []string // pushed one by one
		want            []string // the texts returned, Flush last
	}{
		{"character in two tokens", "llama3-like", []string{"a", "Ã", "©", "b"}, []string{"a", "", "é", "b", ""}},
		{"character never finished", "llama3-like", []string{"a", "ð", "Ł"}, []string{"a", "", "", "\ufffd"}},
		{"character broken off", "llama3-like", []string{"ð", "a"}, []string{"", "\ufffda", ""}},
		{"special token in a character", "llama3-like", []string{"Ã", "<|eot_id|>", "©"}, []string{"", "", "é", ""}},
		{"first space stripped", "llama2-like", []string{"<s>", "▁there", "▁there"}, []string{"", "there", " there", ""}},
		{"byte tokens", "llama2-like", []string{"<0xC3>", "<0xA9>", "<0x41>", "▁"}, []string{"", "é", "A", " ", ""}},
		{"byte run turns invalid", "llama2-like", []string{"<0x41>", "<0xFF>", "<0x42>", "▁"}, []string{"A", "\ufffd", "\ufffd", " ", ""}},
		{"byte run ends in a character", "llama2-like", []string{"<0xE2>", "<0x98>"}, []string{"", "", "\ufffd\ufffd"}},
		{"byte run broken by a token", "llama2-like", []string{"<0xE2>", "<0x98>", "▁", "<0x83>"}, []string{"", "", "\ufffd\ufffd ", "\ufffd", ""}},
		{"metaspace", "t5-like", []string{"▁", "▁hi", "▁"}, []string{"", " hi", " ", ""}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			tok := loadVector(t, c.tokenizer)
			s := tok.NewStream(true)
			var got []string
			for _, token := range c.tokens {
				id, ok := tok.TokenID(token)
				if !ok {
					t.Fatalf("no token %q", token)
				}
				got = append(got, s.Push(id))
			}
			got = append(got, s.Flush())
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	s := loadVector(t, "llama3-like").NewStream(true)
	if got := s.Push() + s.Flush() + s.Flush(); got != "" {
		t.Errorf("empty stream = %q", got)
	}
}

// TestDecodeSteps runs chains over tokens in parts, which no recorded tokenizer
// produces: steps after Fuse see one token that grows.
func TestDecodeSteps(t *testing.T) {
	cases := []struct {
		name   string
		steps  []any
		tokens []string
		want   string
	}{
		{"replace across tokens", []any{object{"type": "Fuse"}, object{"type": "Replace", "pattern": object{"String": "aab"}, "content": "x"}},
			[]string{"a", "a", "a", "b", "a", "ab", "a"}, "axxa"},
		{"replace from the left", []any{object{"type": "Fuse"}, object{"type": "Replace", "pattern": object{"String": "aa"}, "content": "b"}},
			[]string{"a", "a", "a", "aa"}, "bba"},
		{"replace nothing", []any{object{"type": "Fuse"}, object{"type": "Replace", "pattern": object{"String": ""}, "content": "b"}},
			[]string{"a", "a"}, "aa"},
		{"replace regex", []any{object{"type": "Fuse"}, object{"type": "Replace", "pattern": object{"Regex": "a+$"}, "content": "b"}},
			[]string{"a", "ca", "a"}, "acb"},
		{"strip everything", []any{object{"type": "Fuse"}, object{"type": "Strip", "content": "a", "start": 1, "stop": 2}},
			[]string{"a", "a"}, ""},
		{"strip the end", []any{object{"type": "Fuse"}, object{"type": "Strip", "content": "a", "start": 1, "stop": 2}},
			[]string{"b", "a", "a", "a", "c", "aa", "a"}, "baaaca"},
		{"strip the beginning", []any{object{"type": "Fuse"}, object{"type": "Strip", "content": "a", "start": 2, "stop": 0}},
			[]string{"a", "a", "a", "ba"}, "aba"},
		{"wordpiece after fuse", []any{object{"type": "Fuse"}, object{"type": "WordPiece", "prefix": "##", "cleanup": true}},
			[]string{"do", " not", " ."}, "do not."},
		{"wordpiece", []any{object{"type": "WordPiece", "prefix": "##", "cleanup": true}}, []string{"a", "##b", "c", ".", "'", "s"}, "ab c. ' s"},
		{"bpe", []any{object{"type": "BPEDecoder", "suffix": "</w>"}}, []string{"a", "b</w>", "c</w>"}, "ab c"},
		{"bytes then strip", []any{object{"type": "ByteLevel"}, object{"type": "Strip", "content": " ", "start": 1, "stop": 0}}, []string{"Ġ", "Ġa", "Ã", "©"}, " aé"},
		{"outside the alphabet", []any{object{"type": "ByteLevel"}}, []string{"Ã", "日", "©"}, "\ufffd日\ufffd"},
		{"metaspace after fuse", []any{object{"type": "Fuse"}, object{"type": "Metaspace", "replacement": "_", "prepend_scheme": "always"}}, []string{"_a", "_b"}, "ab"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			steps, err := newDecoder(marshal(t, sequenceOf("decoders", c.steps...)), 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, whole := range []bool{true, false} {
				var out collector
				var sink decodeSink = &out
				for i := len(steps) - 1; i >= 0; i-- {
					sink = steps[i].open(sink, whole)
				}
				for _, s := range c.tokens {
					sink.put(s, true, true)
				}
				sink.close()
				if got := string(out.out); got != c.want {
					t.Errorf("whole %v: %q, want %q", whole, got, c.want)
				}
			}
		})
	}
}

func TestConcurrentUse(t *testing.T) {
	for _, name := range []string{"llama3-like", "llama2-like", "t5-like", "kimi"} {
		v := variants[slices.IndexFunc(variants, func(v variant) bool { return v.name == name })]
		tok, err := Load(v.file(t))
		if err != nil {
			t.Fatal(err)
		}
		m := newTextMaker(rand.Uint64(), tok)
		texts := make([]string, 50)
		want := make([][]uint32, len(texts))
		for i := range texts {
			texts[i] = m.text()
			want[i] = tok.Encode(texts[i], true)
		}
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				for i := range texts {
					k := (i + g*7) % len(texts)
					if got := tok.Encode(texts[k], true); !slices.Equal(got, want[k]) {
						t.Errorf("%s: Encode(%+q) = %v, want %v", name, texts[k], got, want[k])
					}
					if got := streamed(tok, want[k], true); got != streamText(tok, want[k], true) {
						t.Errorf("%s: stream of %v = %+q", name, want[k], got)
					}
				}
			})
		}
		wg.Wait()
	}
}
