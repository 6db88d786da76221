package tokenizer

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestScannersMatchEngine compares the hand-written scanners with the regular
// expression engine running the patterns they stand for.
func TestScannersMatchEngine(t *testing.T) {
	patterns := map[string]string{
		"gpt2": gpt2Pattern, "gpt2 grouped": `'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`,
		"llama3": llama3Pattern, "qwen2": foldedContractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*` + spaceTail,
		"qwen2 cased": casedContractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*` + spaceTail,
		"qwen3.5":     qwen35Pattern, "o200k": o200kPattern, "tekken": tekkenPattern, "deepseek": deepseekPattern,
		"digits": `\p{N}{1,3}`, "digit": `\p{N}`, "number": `\p{N}+`, "cjk": "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
	}
	tok := loadVector(t, "llama3-like")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for name, pattern := range patterns {
		t.Run(name, func(t *testing.T) {
			sc := knownScanner(pattern)
			if sc == nil {
				t.Fatal("no scanner")
			}
			engine, err := newRegexFinder(pattern)
			if err != nil {
				t.Fatal(err)
			}
			m := newTextMaker(seed, tok)
			for range 3000 {
				text := m.text()
				if m.r.IntN(4) == 0 {
					text += "'ſabc" + m.text()
				}
				got, _ := scanFinder{sc}.spans(nil, text)
				want, err := engine.spans(nil, text)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(got, want) {
					t.Fatalf("%+q: got %s, want %s", text, pieces(text, got), pieces(text, want))
				}
			}
		})
	}
}

func pieces(s string, spans []span) (out []string) {
	for _, x := range spans {
		out = append(out, s[x.start:x.end])
	}
	return out
}
