package chat_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dynctl/dynctl/internal/chat"
)

// reading is the result of pushing tokens.
type reading struct {
	text    string
	stopped bool
	tokens  int
	decoded int
}

// read pushes tokens in pieces that next gives the sizes of.
func read(d *chat.Detokenizer, ids []uint32, next func(left int) int) (r reading) {
	for len(ids) > 0 && !r.stopped {
		n := next(len(ids))
		var text string
		text, r.stopped = d.Push(ids[:n])
		r.text += text
		ids = ids[n:]
	}
	r.text += d.Flush()
	r.stopped, r.tokens, r.decoded = d.Stopped(), d.Tokens(), d.Decoded()
	return r
}

// However tokens are cut into calls, the text is the same: also with stop strings
// across tokens, a minimum, halves of characters and bytes that are none. What is
// returned is valid, and with no stop string as long as what was decoded.
func TestAnySplitGivesTheSameText(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	stopped, halves := 0, 0
	for _, name := range []string{"llama3-like", "qwen2-like", "llama2-like", "gemma-like"} {
		p := load(t, chat.Files{chat.TokenizerFile: tokenizerFile(t, name)})
		for range 400 {
			ids := make([]uint32, rng.IntN(40))
			for i := range ids {
				ids[i] = uint32(rng.IntN(p.VocabSize()))
				if rng.IntN(3) == 0 { // a byte or a short token, parts of characters among them
					ids[i] = uint32(rng.IntN(min(300, p.VocabSize())))
				}
			}
			if rng.IntN(2) == 0 { // a text cut off anywhere
				whole := p.EncodeChat("é日本語 😀 done\n\nUser: " + strings.Repeat("ab ", rng.IntN(5)) + "😀")
				ids = append(ids, whole[:rng.IntN(len(whole)+1)]...)
			}
			skip, include, least := rng.IntN(2) == 0, rng.IntN(2) == 0, 0
			var stops []string
			plain := read(p.NewDetokenizer(chat.Stops{}, false, skip), ids, func(int) int { return 1 })
			for range rng.IntN(4) { // most of them are in the text
				runes := []rune(plain.text)
				if len(runes) == 0 {
					break
				}
				from := rng.IntN(len(runes))
				stops = append(stops, string(runes[from:min(from+1+rng.IntN(6), len(runes))]))
			}
			if rng.IntN(2) == 0 {
				least = rng.IntN(len(ids) + 1)
			}
			fresh := func() *chat.Detokenizer {
				d := p.NewDetokenizer(chat.NewStops(stops), include, skip)
				d.SetMinTokens(least)
				return d
			}
			want := read(fresh(), ids, func(int) int { return 1 })
			for _, next := range []func(int) int{
				func(left int) int { return left },
				func(left int) int { return 1 + rng.IntN(left) },
				func(left int) int { return min(2, left) },
			} {
				if got := read(fresh(), ids, next); got != want {
					t.Fatalf("%s: %v, stops %q, minimum %d: got %+v, want %+v", name, ids, stops, least, got, want)
				}
			}
			if !utf8.ValidString(want.text) || !strings.HasPrefix(plain.text, want.text) || !want.stopped && len(want.text) != want.decoded {
				t.Fatalf("%s: %v, stops %q: %+v of %q", name, ids, stops, want, plain.text)
			}
			if want.stopped {
				stopped++
			} else if strings.HasSuffix(want.text, "\ufffd") {
				halves++
			}
		}
	}
	if stopped < 100 || halves < 20 {
		t.Errorf("%d texts were stopped and %d end in half a character: the cases test too little", stopped, halves)
	}
}

// The bytes of tokens make up the text.
func TestTokenBytes(t *testing.T) {
	for _, name := range []string{"llama3-like", "qwen2-like"} {
		p := load(t, chat.Files{chat.TokenizerFile: tokenizerFile(t, name)})
		const text = "naïve 日本語 😀 text"
		var got []byte
		for _, id := range p.EncodeText(text) {
			got = append(got, p.TokenBytes(id)...)
		}
		if string(got) != text {
			t.Errorf("%s: got %q, want %q", name, got, text)
		}
		if p.TokenBytes(1<<31) != nil {
			t.Errorf("%s: an unknown token has bytes", name)
		}
	}
}
