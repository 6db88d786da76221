package workload

import (
	"math"
	"math/rand/v2"
	"strings"
)

// Words is the text from which prompts take their words. They are common, so that most
// tokenizers know them whole.
const Words = "the worker writes a block and reads its prefix from the queue while another one waits for its lease to move on"

var vocabulary = strings.Fields(Words)

// Scale says how a server counts the tokens of a prompt of words.
type Scale struct {
	PerWord  float64 `json:"per_word"` // tokens of a word, with the space before it
	Overhead float64 `json:"overhead"` // tokens that a prompt has beside its words, as those of a chat template
}

// Measure returns the scale by two prompts of different numbers of words. It is false where
// such counts are no tokenizer's.
func Measure(fewWords, fewTokens, manyWords, manyTokens int) (Scale, bool) {
	if manyWords <= fewWords || manyTokens <= fewTokens {
		return Scale{PerWord: 1}, false
	}
	per := float64(manyTokens-fewTokens) / float64(manyWords-fewWords)
	return Scale{PerWord: per, Overhead: max(float64(fewTokens)-per*float64(fewWords), 0)}, true
}

// Write returns the text of a turn. The overhead of its prompt is taken off its last part,
// which keeps at least a word; parts of the same text begin with the same words.
func (s Scale) Write(t Turn, seed uint64) string {
	var b strings.Builder
	for i, p := range t.Parts {
		tokens := float64(p.Tokens)
		if i == len(t.Parts)-1 {
			tokens -= s.Overhead
		}
		r := rand.New(rand.NewPCG(seed, p.Text))
		for range max(int(math.Round(tokens/s.PerWord)), 1) {
			if b.Len() > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(vocabulary[r.IntN(len(vocabulary))])
		}
	}
	return b.String()
}
