package profiler

import (
	"fmt"
	"slices"

	"github.com/dynctl/dynctl/internal/profile"
)

// Kinds of points.
const (
	Prefill = "prefill"
	Decode  = "decode"
)

// Point is something to measure.
type Point struct {
	Kind string `json:"kind"`
	// Tokens are those of the prompt, or the mean context of the sequences that decode.
	Tokens  int `json:"tokens"`
	Streams int `json:"streams"` // sequences at a time; 1 of a prompt
}

// String names the point for people.
func (p Point) String() string {
	if p.Kind == Prefill {
		return fmt.Sprintf("a prompt of %d tokens", p.Tokens)
	}
	return fmt.Sprintf("%d at a time at %d tokens", p.Streams, p.Tokens)
}

const (
	// window is how many tokens of each sequence the time between tokens is measured over.
	window = 32
	// leastWindow is the least that is accepted where no more fits.
	leastWindow = 8
	// shortest is the shortest prompt, if the template of a chat is not longer.
	shortest = 32
	// nearest is the least context of sequences that decode.
	nearest = 128
	// fill is the most of the KV pool that the sequences of a point may take together. A full
	// pool preempts.
	fill = 0.9
)

// slack is what a prompt may be longer than wanted, since words are not tokens.
func slack(tokens int) int { return tokens/32 + 8 }

// Plan lists the points of a worker's limits in the order in which to measure them. overhead is
// the tokens that a prompt has beside its text. Lengths of prompts double up to the longest.
// Contexts grow fourfold, and the sequences at each double up to the most that the KV pool holds.
func Plan(l profile.Limits, overhead int) []Point {
	type ranked struct {
		Point
		level int
	}
	var all []ranked
	longest := min(l.MaxContext-1, l.KVTokens()-l.BlockSize)
	longest -= slack(longest)
	// The overhead is measured, and may be another one when the sweep goes on: the grid stays the same
	// unless it is far from that.
	least := shortest
	for least < 2*overhead {
		least *= 2
	}
	lengths := grid(least, longest, 2)
	for i, n := range lengths {
		all = append(all, ranked{Point{Prefill, n, 1}, level(i, len(lengths))})
	}
	far := min(l.MaxContext, int(fill*float64(l.KVTokens()))) - window
	far -= slack(far)
	contexts := grid(min(max(nearest, 2*least), max(far, shortest+window)), far, 4)
	for i, context := range contexts {
		most := min(l.MaxSeqs, int(fill*float64(l.KVTokens()))/(context+window+l.BlockSize))
		streams := grid(1, most, 2)
		for k, n := range streams {
			all = append(all, ranked{Point{Decode, context, n}, max(level(i, len(contexts)), level(k, len(streams)))})
		}
	}
	slices.SortStableFunc(all, func(a, b ranked) int {
		if a.level != b.level {
			return a.level - b.level
		}
		if a.Kind != b.Kind && a.Kind == Prefill {
			return -1
		}
		if a.Kind != b.Kind {
			return 1
		}
		return a.Tokens*a.Streams - b.Tokens*b.Streams
	})
	points := make([]Point, len(all))
	for i, r := range all {
		points[i] = r.Point
	}
	return points
}

// grid grows by a factor from low to high, which is its last value. One near it is left out.
func grid(low, high, by int) (out []int) {
	if low < 1 || high < low {
		return nil
	}
	for n := low; n*4 < high*3; n *= by {
		out = append(out, n)
	}
	return append(out, high)
}

// level says in which pass value i of n is measured: the ends first, then what lies in the middle
// of two that were.
func level(i, n int) int {
	low, high := 0, n-1
	if i == low || i == high {
		return 0
	}
	for l := 1; ; l++ {
		middle := (low + high) / 2
		switch {
		case i == middle:
			return l
		case i < middle:
			high = middle
		default:
			low = middle
		}
	}
}
