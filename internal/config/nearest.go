package config

import "strings"

// Nearest returns the candidate that somebody may have meant by name, or "".
func Nearest(name string, candidates []string) string { return nearest(name, candidates) }

// nearest returns the candidate with the fewest edits to name, or "" when none is
// near enough to be a typing mistake. A name without its section matches too:
// "kv_blocks" finds "engine.kv_blocks".
func nearest(name string, candidates []string) string {
	best, bestEdits := "", 0
	for _, c := range candidates {
		d := edits(name, c)
		if _, last, ok := strings.Cut(c, "."); ok && !strings.Contains(name, ".") {
			d = min(d, edits(name, last))
		}
		if best == "" || d < bestEdits {
			best, bestEdits = c, d
		}
	}
	if bestEdits > max(2, len(name)/3) || bestEdits >= len(name) {
		return ""
	}
	return best
}

// edits is the Levenshtein distance in bytes.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(diagonal+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

func didYouMean(name string, candidates []string) string {
	if n := nearest(name, candidates); n != "" {
		return "; did you mean " + n + "?"
	}
	return ""
}
