package chat_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/chat"
)

func TestStopStrings(t *testing.T) {
	tests := []struct {
		name    string
		pieces  string // separated by |
		stops   []string
		include bool
		want    string // what Push returns, separated by |; > marks the stop, Flush comes last
	}{
		{"no stops", "a|b", nil, false, "a|b|"},
		{"empty stops are ignored", "a|b", []string{""}, false, "a|b|"},
		{"plain", "a|b|STOP|c", []string{"STOP"}, false, "a|b|>"},
		{"included", "a|b|STOP|c", []string{"STOP"}, true, "a|b|STOP>"},
		{"inside of a token", "hello STOP world", []string{"STOP"}, false, "hello >"},
		{"included inside of a token", "hello STOP world", []string{"STOP"}, true, "hello STOP>"},
		{"split over tokens", "a S|T|OP b", []string{"STOP"}, false, "a ||>"},
		{"split and included", "a S|T|OP b", []string{"STOP"}, true, "a ||STOP>"},
		{"beginning that goes on otherwise", "a S|T|ART", []string{"STOP"}, false, "a ||START|"},
		{"beginning at the end of the text", "a S|TO", []string{"STOP"}, false, "a ||STO"},
		{"overlapping beginning", "aa|aa|b", []string{"aab"}, false, "|aa|>"},
		{"beginning inside of a beginning", "xababa|bc", []string{"ababc"}, false, "xab|>"},
		{"earliest position wins, not the order of the list", "one two three", []string{"three", "two"}, false, "one >"},
		{"what is complete first wins", "abcd", []string{"abcd", "bc"}, false, "a>"},
		{"complete first also over tokens", "a|b|c|d", []string{"abcd", "bc"}, false, "||a>"},
		{"of those that end together the longer wins", "x\n\nUser:", []string{"User:", "\n\nUser:"}, false, "x>"},
		{"shorter stop that begins a longer one", "ab|c", []string{"abc", "ab"}, false, ">"},
		{"several bytes per character", "日|本|語", []string{"本語"}, false, "日||>"},
		{"held back at a character boundary", "日|本|x", []string{"本語"}, false, "日||本x|"},
		{"stop at once", "STOP", []string{"STOP"}, false, ">"},
		{"one character", "a.b", []string{"."}, true, "a.>"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pieces := strings.Split(tt.pieces, "|")
			d := chat.NewTextDetokenizer(pieces, tt.stops, tt.include)
			var got []string
			for i := range pieces {
				text, stopped := d.Push([]uint32{uint32(i)})
				if stopped {
					text += ">"
				}
				got = append(got, text)
				if stopped {
					if again, still := d.Push([]uint32{uint32(i)}); again != "" || !still {
						t.Errorf("Push after the stop: got %q, %v", again, still)
					}
					break
				}
			}
			if text := d.Flush(); !strings.HasSuffix(got[len(got)-1], ">") {
				got = append(got, text)
			} else if text != "" {
				t.Errorf("Flush after the stop: got %q", text)
			}
			if g := strings.Join(got, "|"); g != tt.want {
				t.Errorf("got %q, want %q", g, tt.want)
			}
		})
	}
}

// cut says what a text with stop strings must become: the stop string that is
// complete first ends it, of those that end together the longest.
func cut(text string, stops []string, include bool) (string, bool) {
	for end := 1; end <= len(text); end++ {
		longest := 0
		for _, s := range stops {
			if s != "" && strings.HasSuffix(text[:end], s) {
				longest = max(longest, len(s))
			}
		}
		if longest > 0 {
			if include {
				return text[:end], true
			}
			return text[:end-longest], true
		}
	}
	return text, false
}

// heldBack is the length of the longest end of text that begins a stop string.
func heldBack(text string, stops []string) int {
	for n := len(text); n > 0; n-- {
		for _, s := range stops {
			if n < len(s) && strings.HasSuffix(text, s[:n]) {
				return n
			}
		}
	}
	return 0
}

func TestStopStringsAgainstModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	word := func(n int) string {
		letters := []string{"a", "b", "é", "c"}[:2+rng.IntN(3)]
		var b strings.Builder
		for range rng.IntN(n) {
			b.WriteString(letters[rng.IntN(len(letters))])
		}
		return b.String()
	}
	for range 5_000 {
		var stops []string
		for range rng.IntN(4) {
			stops = append(stops, word(6))
		}
		var pieces []string
		var ids []uint32
		for i := range rng.IntN(12) {
			pieces = append(pieces, word(5))
			ids = append(ids, uint32(i))
		}
		include := rng.IntN(2) == 0
		text := strings.Join(pieces, "")
		want, wantStop := cut(text, stops, include)

		d := chat.NewTextDetokenizer(pieces, stops, include)
		got, stopped, seen := "", false, ""
		for len(ids) > 0 && !stopped {
			n := 1 + rng.IntN(len(ids))
			var piece string
			piece, stopped = d.Push(ids[:n])
			for _, id := range ids[:n] {
				seen += pieces[id]
			}
			got += piece
			ids = ids[n:]
			if !stopped && len(got) != len(seen)-heldBack(seen, stops) {
				t.Fatalf("stops %q, seen %q: returned %q, want %d bytes held back", stops, seen, got, heldBack(seen, stops))
			}
		}
		got += d.Flush()
		if got != want || stopped != wantStop {
			t.Fatalf("stops %q, pieces %q, include %v: got %q, %v, want %q, %v", stops, pieces, include, got, stopped, want, wantStop)
		}
	}
}

func TestMinTokens(t *testing.T) {
	pieces := []string{"a.", "b.", "c", ".d"}
	d := chat.NewTextDetokenizer(pieces, []string{".", "b.c"}, false)
	d.SetMinTokens(2)
	text, stopped := d.Push([]uint32{0, 1, 2, 3})
	if text != "a.b.c" || !stopped {
		t.Errorf("got %q, %v, want a.b.c and a stop: text of the first two tokens is not searched", text, stopped)
	}
	if d.Tokens() != 4 {
		t.Errorf("got %d tokens, want 4", d.Tokens())
	}
	d = chat.NewTextDetokenizer(pieces, []string{"."}, false)
	if _, stopped := d.Push([]uint32{0, 1, 2}); !stopped || d.Tokens() != 1 {
		t.Errorf("got stopped %v after %d tokens, want a stop after 1", stopped, d.Tokens())
	}
}

// A stop string that keeps almost matching must not make the text cost more than
// in proportion to its length.
func TestStopStringCostIsLinear(t *testing.T) {
	stop := strings.Repeat("a", 2000) + "b"
	cost := func(n int) time.Duration {
		pieces := []string{"a"}
		d := chat.NewTextDetokenizer(pieces, []string{stop, "c" + stop}, false)
		start := time.Now()
		total := 0
		for range n {
			text, _ := d.Push([]uint32{0})
			total += len(text)
		}
		total += len(d.Flush())
		if total != n {
			t.Fatalf("got %d bytes, want %d", total, n)
		}
		return time.Since(start)
	}
	const n = 300_000 // looking at all text again for each token would take minutes
	if d := cost(n); d > 10*time.Second {
		t.Errorf("%d bytes took %v", n, d)
	}
}

func TestDetokenizerOverTokenizers(t *testing.T) {
	texts := []string{
		"Hello, world! How are you today?", "naïve 日本語 😀 text\nwith lines\n\nand 12345 numbers", "  leading and trailing  ",
		"The quick brown fox jumps over the lazy dog.", "\u200b\ufeff odd \u0301 marks",
	}
	for _, name := range []string{"llama3-like", "qwen2-like", "llama2-like", "gemma-like"} {
		p := load(t, chat.Files{chat.TokenizerFile: tokenizerFile(t, name)})
		for _, text := range texts {
			t.Run(fmt.Sprintf("%s/%.8q", name, text), func(t *testing.T) {
				ids := p.EncodeChat(text)
				want := p.Decode(ids)
				d := p.NewDetokenizer(chat.NewStops([]string{"never there"}), false, true)
				plain := p.NewDetokenizer(chat.Stops{}, false, true)
				got, got2 := "", ""
				for _, id := range ids {
					a, _ := d.Push([]uint32{id})
					b, _ := plain.Push([]uint32{id})
					got += a
					got2 += b
				}
				got += d.Flush()
				got2 += plain.Flush()
				if got != want || got2 != want {
					t.Errorf("got %q and %q, want %q", got, got2, want)
				}
				// Every word of the text as a stop string, wherever tokens begin.
				for _, stop := range strings.Fields(want) {
					d := p.NewDetokenizer(chat.NewStops([]string{stop}), false, true)
					got := ""
					stopped := false
					for _, id := range ids {
						var a string
						a, stopped = d.Push([]uint32{id})
						got += a
						if stopped {
							break
						}
					}
					got += d.Flush()
					if expect, _ := cut(want, []string{stop}, false); got != expect {
						t.Errorf("stop %q: got %q, want %q", stop, got, expect)
					}
				}
			})
		}
	}
}

func FuzzDetokenizer(f *testing.F) {
	f.Add("a STOP b", "STOP", "OP", uint8(3), true)
	f.Add("aaaa", "aab", "", uint8(1), false)
	f.Fuzz(func(t *testing.T, text, stop1, stop2 string, size uint8, include bool) {
		var pieces []string
		for n := int(size%16) + 1; text != ""; {
			k := min(n, len(text))
			pieces = append(pieces, text[:k])
			text = text[k:]
		}
		stops := []string{stop1, stop2}
		want, wantStop := cut(strings.Join(pieces, ""), stops, include)
		d := chat.NewTextDetokenizer(pieces, stops, include)
		got, stopped := "", false
		for i := range pieces {
			var a string
			a, stopped = d.Push([]uint32{uint32(i)})
			got += a
		}
		got += d.Flush()
		if got != want || stopped != wantStop {
			t.Errorf("pieces %q, stops %q: got %q, %v, want %q, %v", pieces, stops, got, stopped, want, wantStop)
		}
	})
}
