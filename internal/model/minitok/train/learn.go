package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dlclark/regexp2"

	"github.com/dynctl/dynctl/internal/model/minitok"
)

// word is a piece of the text as a row of tokens, and how often it occurs.
type word struct {
	tokens []string
	count  int
}

type pair struct{ left, right string }

// learn finds n merges: again and again the most frequent pair of neighboring
// tokens becomes a new token. Equal counts go to the pair that is first in the
// alphabet, so the result depends on the text alone.
func learn(text string, n int) ([]string, error) {
	words, err := split(text)
	if err != nil {
		return nil, err
	}
	made := make(map[string]bool)
	var merges []string
	for len(merges) < n {
		best, count := frequent(words, made)
		if count < 2 {
			return nil, fmt.Errorf("text is too short: only %d merges occur twice, want %d", len(merges), n)
		}
		made[best.left+best.right] = true
		merges = append(merges, best.left+" "+best.right)
		for _, w := range words {
			w.merge(best)
		}
	}
	return merges, nil
}

// split cuts the text as the tokenizer does and counts equal pieces.
func split(text string) ([]*word, error) {
	re, err := regexp2.Compile(minitok.SplitPattern(), regexp2.None)
	if err != nil {
		return nil, err
	}
	byPiece := make(map[string]*word)
	var words []*word
	m, err := re.FindStringMatch(text)
	for ; m != nil && err == nil; m, err = re.FindNextMatch(m) {
		piece := m.String()
		w, ok := byPiece[piece]
		if !ok {
			w = &word{tokens: strings.Split(minitok.Encode(piece), "")}
			byPiece[piece] = w
			words = append(words, w)
		}
		w.count++
	}
	return words, err
}

// frequent finds the pair that occurs most often and whose token is not made yet.
func frequent(words []*word, made map[string]bool) (best pair, count int) {
	counts := make(map[pair]int)
	for _, w := range words {
		for i := 1; i < len(w.tokens); i++ {
			counts[pair{w.tokens[i-1], w.tokens[i]}] += w.count
		}
	}
	for p, c := range counts {
		if made[p.left+p.right] {
			continue
		}
		if c > count || c == count && (p.left < best.left || p.left == best.left && p.right < best.right) {
			best, count = p, c
		}
	}
	return best, count
}

func (w *word) merge(p pair) {
	for i := 1; i < len(w.tokens); i++ {
		if w.tokens[i-1] == p.left && w.tokens[i] == p.right {
			w.tokens[i-1] += p.right
			w.tokens = slices.Delete(w.tokens, i, i+1)
		}
	}
}
