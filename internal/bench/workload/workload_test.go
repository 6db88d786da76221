package workload

import (
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/mooncake"
)

// Draws have the mean and deviation that the distribution names.
func TestLengths(t *testing.T) {
	for text, want := range map[string]struct{ mean, deviation, low, high float64 }{
		"512":               {512, 0, 512, 512},
		"uniform:100:300":   {200, 58.02, 100, 300}, // of whole numbers: sqrt((201²-1)/12)
		"normal:1000:100":   {1000, 100, 400, 1600},
		"lognormal:800:400": {800, 400, 1, 20000},
		"lognormal:800:0":   {800, 0, 800, 800},
		"1":                 {1, 0, 1, 1},
	} {
		l, err := ParseLengths(text)
		if err != nil || l.String() != text || l.Mean() != want.mean {
			t.Fatalf("%s: %v, mean %v, %v", text, l, l.Mean(), err)
		}
		const n = 20000
		r := rand.New(rand.NewPCG(3, 4))
		sum, square := 0.0, 0.0
		for range n {
			v := float64(l.Draw(r))
			if v < want.low || v > want.high {
				t.Fatalf("%s: drew %v", text, v)
			}
			sum, square = sum+v, square+v*v
		}
		mean := sum / n
		deviation := math.Sqrt(max(square/n-mean*mean, 0))
		if math.Abs(mean-want.mean) > 4*want.deviation/math.Sqrt(n)+1e-9 || math.Abs(deviation-want.deviation) > 0.05*want.deviation+1e-4 {
			t.Errorf("%s: mean %.1f, deviation %.2f", text, mean, deviation)
		}
	}
	short, _ := ParseLengths("normal:2:50")
	r := rand.New(rand.NewPCG(3, 4))
	for range 1000 {
		if v := short.Draw(r); v < 1 {
			t.Fatalf("drew %d", v)
		}
	}
	for text, want := range map[string]string{
		"": "invalid syntax", "0": "0 is not between 1", "-4": "-4 is not", "1.5": "whole", "x": "invalid syntax", "NaN": "NaN is not between", "uniform:5": "two numbers", "uniform:9:8": "9 is more than 8",
		"uniform:1:2:3": "two numbers", "fixed:3": "two numbers", "zipf:1:2": "no such distribution", "normal:5:-1": "-1 is not between 0", "normal:0:1": "0 is not", "uniform:1:2.5": "whole", "17000000": "17000000 is not",
	} {
		if _, err := ParseLengths(text); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "uniform:LOW:HIGH") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestSynthetic(t *testing.T) {
	s := Synthetic{Input: Fixed(100), Output: Fixed(7), Share: 0.6, Prefixes: 3, Turns: 2, Seed: 9}
	prefixes, own := map[uint64]int{}, map[uint64]bool{}
	for i := range 300 {
		c, ok := s.Conversation(i)
		again, _ := s.Conversation(i)
		if !ok || !reflect.DeepEqual(c, again) || len(c.Turns) != 2 {
			t.Fatalf("%+v, then %+v", c, again)
		}
		first, second := c.Turns[0], c.Turns[1]
		if first.Input() != 100 || second.Input() != 100 || first.Output != 7 || first.Parts[0].Tokens != 60 || len(first.Parts) != 2 || len(second.Parts) != 1 {
			t.Fatalf("%+v", c)
		}
		prefixes[first.Parts[0].Text]++
		own[first.Parts[1].Text], own[second.Parts[0].Text] = true, true
	}
	if len(prefixes) != 3 || len(own) != 600 {
		t.Errorf("%d prefixes, %d own texts", len(prefixes), len(own))
	}
	for p, n := range prefixes {
		if n < 70 || n > 130 || own[p] {
			t.Errorf("prefix %d is that of %d conversations", p, n)
		}
	}
	s.Share = 1
	if c, _ := s.Conversation(0); len(c.Turns[0].Parts) != 1 || c.Turns[0].Input() != 100 {
		t.Errorf("all shared: %+v", c)
	}
	s.Seed, s.Input = 10, Lengths{"uniform", 1, 1000}
	other, _ := s.Conversation(4)
	s.Seed = 11
	if c, _ := s.Conversation(4); reflect.DeepEqual(c, other) {
		t.Error("two seeds draw the same")
	}
}

func trace(t *testing.T, speed float64) Trace {
	t.Helper()
	f, err := os.Open("testdata/synthetic.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	requests, err := mooncake.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return Trace{requests, speed}
}

// Prompts of a trace have its lengths and times, and share as many words as they share ids.
func TestTrace(t *testing.T) {
	tr := trace(t, 4)
	scale := Scale{PerWord: 1}
	shared := 0
	var before []string
	for i, q := range tr.Requests {
		c, ok := tr.Conversation(i)
		if !ok || len(c.Turns) != 1 || c.Turns[0].Input() != q.Input || c.Turns[0].Output != q.Output || c.At != (q.At-tr.Requests[0].At)/4 {
			t.Fatalf("%+v of %+v", c, q)
		}
		text := strings.Fields(scale.Write(c.Turns[0], 1))
		if len(text) != q.Input {
			t.Fatalf("%d words, want %d", len(text), q.Input)
		}
		if i > 0 {
			same := 0
			for same < min(len(q.Blocks), len(tr.Requests[i-1].Blocks)) && q.Blocks[same] == tr.Requests[i-1].Blocks[same] {
				same++
			}
			words := 0
			for words < min(len(text), len(before)) && text[words] == before[words] {
				words++
			}
			want := min(same*mooncake.BlockSize, q.Input, tr.Requests[i-1].Input)
			// The next word may be the same by chance.
			if words < want || words > want+12 {
				t.Errorf("request %d shares %d blocks and %d words with the one before", i, same, words)
			}
			shared += same
		}
		before = text
	}
	if shared < 10 {
		t.Errorf("only %d blocks are shared: this shows little", shared)
	}
	if _, ok := tr.Conversation(len(tr.Requests)); ok {
		t.Error("a trace goes on behind its end")
	}
	last, _ := tr.Conversation(len(tr.Requests) - 1)
	if tr.Span() != last.At || tr.Span() <= 0 || (Trace{}).Span() != 0 {
		t.Errorf("span %s, last at %s", tr.Span(), last.At)
	}
	if slow := trace(t, 1).Span(); slow != 4*tr.Span() {
		t.Errorf("%s at speed 1, %s at speed 4", slow, tr.Span())
	}
}

func TestScale(t *testing.T) {
	s, ok := Measure(10, 38, 110, 188)
	if !ok || s != (Scale{PerWord: 1.5, Overhead: 23}) {
		t.Errorf("%+v, %t", s, ok)
	}
	for _, bad := range [][4]int{{10, 5, 10, 9}, {10, 9, 20, 9}, {20, 5, 10, 9}} {
		if s, ok := Measure(bad[0], bad[1], bad[2], bad[3]); ok || s.PerWord != 1 {
			t.Errorf("%v: %+v", bad, s)
		}
	}
	if s, _ := Measure(10, 10, 20, 40); s.Overhead != 0 {
		t.Errorf("overhead %v", s.Overhead)
	}
	turn := Turn{Parts: []Part{{1, 30}, {2, 143}}}
	words := strings.Fields(s.Write(turn, 7))
	if len(words) != 20+80 {
		t.Errorf("%d words, want 20 and 80", len(words))
	}
	if other := strings.Fields(s.Write(turn, 8)); reflect.DeepEqual(words[:20], other[:20]) {
		t.Error("two seeds write the same")
	}
	longer := strings.Fields(s.Write(Turn{Parts: []Part{{1, 300}, {3, 53}}}, 7))
	if !reflect.DeepEqual(words[:20], longer[:20]) || reflect.DeepEqual(words[20:40], longer[200:220]) {
		t.Error("equal texts begin with other words, or other texts with equal ones")
	}
	if text := s.Write(Turn{Parts: []Part{{1, 3}}}, 7); len(strings.Fields(text)) != 1 {
		t.Errorf("shorter than the overhead: %q", text)
	}
}
