package tokenizer

import (
	"fmt"
	"strings"
	"testing"
)

func TestAddedMatcher(t *testing.T) {
	plain := func(s ...string) (out []AddedToken) {
		for _, c := range s {
			out = append(out, AddedToken{Content: c})
		}
		return out
	}
	cases := []struct {
		name   string
		tokens []AddedToken
		text   string
		want   string // matches in brackets, parts separated by |
	}{
		{"none", nil, "ab", "ab"},
		{"empty text", plain("a"), "", ""},
		{"longest wins", plain("<A>", "<A><B>", "<B>"), "<A><B><A>x<B>", "[<A><B>]|[<A>]|x|[<B>]"},
		{"leftmost wins", plain("bc", "abx", "b"), "abc", "a|[bc]"},
		{"broken prefix", plain("<think>"), "<thin <think>", "<thin |[<think>]"},
		{"single word alone", []AddedToken{{Content: "half", SingleWord: true}}, "half half. half", "[half]| |[half]|. |[half]"},
		{"single word inside words", []AddedToken{{Content: "half", SingleWord: true}}, "behalf halfway half_ halfé half2 half", "behalf halfway half_ halfé half2 |[half]"},
		{"single word next to a mark", []AddedToken{{Content: "half", SingleWord: true}}, "half\u0301 half\u200d half\u00ad", "half\u0301 half\u200d |[half]|\u00ad"},
		{"search goes on after a rejected match", []AddedToken{{Content: "aa", SingleWord: true}, {Content: "a"}}, "aaa", "aa|[a]"},
		{"left strip", []AddedToken{{Content: "<L>", LStrip: true}}, "a \t\n<L> b", "a|[ \t\n<L>]| b"},
		{"left strip stops at a match", []AddedToken{{Content: "<L>", LStrip: true}, {Content: " "}}, "a  <L>", "a|[ ]|[ ]|[<L>]"},
		{"right strip", []AddedToken{{Content: "<R>", RStrip: true}}, "a <R> \u00a0\nb", "a |[<R> \u00a0\n]|b"},
		{"zero width space is no space", []AddedToken{{Content: "<R>", RStrip: true}}, "<R>\u200bb", "[<R>]|\u200bb"},
		{"spaces after right strip match again", []AddedToken{{Content: "<R>", RStrip: true}, {Content: "  "}}, "<R>   x", "[<R>   ]|[  ]| x"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := newAddedMatcher()
			for i := range c.tokens {
				m.add(c.tokens[i].Content, &c.tokens[i])
			}
			var got []string
			m.cut(c.text, func(start, end int, token *AddedToken) bool {
				part := c.text[start:end]
				if token != nil {
					if !strings.Contains(part, token.Content) {
						t.Errorf("match %q of token %q", part, token.Content)
					}
					part = "[" + part + "]"
				}
				got = append(got, part)
				return true
			})
			if s := strings.Join(got, "|"); s != c.want {
				t.Errorf("cut %q = %q, want %q", c.text, s, c.want)
			}
		})
	}
}

// TestPrependFirst covers prepend_scheme first: the mark goes only before the
// piece that begins the text.
func TestPrependFirst(t *testing.T) {
	base := func(f object) {
		at(f, "model", "vocab")["▁"] = 262
		f["normalizer"], f["post_processor"] = nil, nil
		f["pre_tokenizer"] = object{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false}
	}
	cases := []struct {
		name, text string
		change     func(object)
		want       string
	}{
		{"plain", "he", func(object) {}, "▁|he"},
		{"after an added token", "<tool>he", func(object) {}, "<tool>|he"},
		{"before an added token", "he<tool>he", func(object) {}, "▁|he|<tool>|he"},
		{"already marked", " he", func(object) {}, "▁|he"},
		{"spaces stripped", "  he", func(f object) { f["normalizer"] = object{"type": "Strip", "strip_left": true, "strip_right": false} }, "he"},
		{"nothing to strip", "he ", func(f object) { f["normalizer"] = object{"type": "Strip", "strip_left": true, "strip_right": true} }, "▁|he"},
		{"beginning replaced", "abhe", func(f object) {
			f["normalizer"] = object{"type": "Replace", "pattern": object{"String": "ab"}, "content": "l"}
		}, "l|he"},
		{"one character replaced", "bhe", func(f object) {
			f["normalizer"] = object{"type": "Replace", "pattern": object{"String": "b"}, "content": "l"}
		}, "▁|l|he"},
		{"accent dropped", "\u0301he", func(f object) { f["normalizer"] = object{"type": "StripAccents"} }, "he"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := smallFile()
			base(f)
			c.change(f)
			tok, err := Load(marshal(t, f))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, id := range tok.Encode(c.text, false) {
				s, _ := tok.Token(id)
				got = append(got, s)
			}
			if s := strings.Join(got, "|"); s != c.want {
				t.Errorf("Encode(%q) = %s, want %s", c.text, s, c.want)
			}
		})
	}
}

func TestAccessors(t *testing.T) {
	tok := loadVector(t, "qwen2-like")
	if got := tok.VocabSize(); got != 628 {
		t.Errorf("VocabSize = %d, want 628", got)
	}
	id, ok := tok.TokenID("<|im_end|>")
	if !ok || id != 618 || !tok.IsSpecial(id) {
		t.Errorf("<|im_end|>: id %d, %v, special %v", id, ok, tok.IsSpecial(id))
	}
	if _, ok := tok.TokenID("<|nope|>"); ok {
		t.Error("TokenID found <|nope|>")
	}
	if id, _ := tok.TokenID("<think>"); tok.IsSpecial(id) {
		t.Error("<think> counts as special")
	}
	for _, id := range []uint32{628, 1 << 31, 1<<32 - 1} {
		if s, ok := tok.Token(id); ok || tok.IsSpecial(id) || tok.TokenBytes(id) != nil || tok.Decode([]uint32{id}, false) != "" {
			t.Errorf("id %d exists: %q", id, s)
		}
	}
	added := tok.AddedTokens()
	if len(added) != 12 || added[0].Content != "<|endoftext|>" || added[11].ID != 627 || !added[0].Special || added[11].Special {
		t.Errorf("AddedTokens = %v", added)
	}
}

func TestTokenBytes(t *testing.T) {
	cases := []struct{ tokenizer, token, want string }{
		{"qwen2-like", "Ġa", " a"},
		{"qwen2-like", "à¸", "\xe0\xb8"},
		{"qwen2-like", "<|im_end|>", "<|im_end|>"},
		{"llama2-like", "▁there", " there"},
		{"llama2-like", "<0xE2>", "\xe2"},
		{"llama2-like", "<s>", "<s>"},
		{"gemma-like", "\n\n", "\n\n"},
		{"t5-like", "▁hi", " hi"},
	}
	for _, c := range cases {
		tok := loadVector(t, c.tokenizer)
		id, ok := tok.TokenID(c.token)
		if got := string(tok.TokenBytes(id)); !ok || got != c.want {
			t.Errorf("%s: TokenBytes(%q) = %q, %v; want %q", c.tokenizer, c.token, got, ok, c.want)
		}
	}
	// The bytes of a text's tokens, put together, are the text.
	tok := loadVector(t, "llama3-like")
	var b strings.Builder
	text := "The café 日本語 🙂, isn't it?\n"
	for _, id := range tok.Encode(text, false) {
		b.Write(tok.TokenBytes(id))
	}
	if b.String() != text {
		t.Errorf("bytes %q, want %q", b.String(), text)
	}
	for _, v := range variants { // every decoder has an answer
		tok, err := Load(v.file(t))
		if err != nil {
			t.Fatal(err)
		}
		for id := range uint32(tok.VocabSize()) {
			if s, ok := tok.Token(id); ok && tok.TokenBytes(id) == nil {
				t.Fatalf("%s: no bytes for %q", v.name, s)
			}
		}
	}
	if got, want := fmt.Sprintf("%q", wordPieceDecoder{"##", true}.middle([]byte("."))), `"."`; got != want {
		t.Errorf("WordPiece full stop = %s, want %s", got, want)
	}
}
