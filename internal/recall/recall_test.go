package recall

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func TestDraw(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		sentences, where := 1+r.IntN(60), r.Float64()
		p := Draw(r, sentences, where)
		text := p.Prompt()
		if strings.Count(text, p.Fact) != 1 || strings.Contains(text, "  ") || strings.TrimSpace(text) != text {
			t.Fatalf("seed %d: %q", seed, text)
		}
		door := strings.TrimSuffix(strings.TrimPrefix(p.Question, "What is the code of door "), "?")
		if p.Fact != "The code of door "+door+" is "+p.Answer+"." || strings.Count(text, "door "+door+" ") != 1 {
			t.Fatalf("seed %d: %q and %q in %q", seed, p.Fact, p.Question, text)
		}
		if !p.Right("It is "+p.Answer+".") || p.Right("It is 12.") {
			t.Errorf("seed %d: answer %q", seed, p.Answer)
		}
		first := text[:strings.Index(text, ".")]
		if seen[first] {
			t.Errorf("seed %d: begins like another one: %s", seed, first)
		}
		seen[first] = true
		if n := strings.Count(text, ". ") + strings.Count(text, "? ") + 1; n < max(sentences, 2) {
			t.Errorf("seed %d: %d sentences, want %d", seed, n, sentences)
		}
	}
}

// The fact lies where it was asked to.
func TestDrawPlaces(t *testing.T) {
	for _, where := range []float64{-1, 0, 0.25, 0.5, 1, 7} {
		p := Draw(rand.New(rand.NewPCG(1, 1)), 81, where)
		at := float64(strings.Count(p.Before, ".")) / 80
		if want := min(max(where, 0), 1); at < want-0.05 || at > want+0.05 {
			t.Errorf("asked for %v, it stands at %.2f", where, at)
		}
	}
}
