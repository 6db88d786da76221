package engine_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/mock"
)

// Positions of a few prompts, counted by hand.
func TestPositions(t *testing.T) {
	image := func(start int, g engine.Grid) (blockhash.Media, engine.Grid) {
		return blockhash.Media{Start: start, End: start + g.T*g.H*g.W}, g
	}
	a, ga := image(2, engine.Grid{T: 1, H: 2, W: 3})
	b, gb := image(8, engine.Grid{T: 1, H: 3, W: 1})
	c, gc := image(0, engine.Grid{T: 2, H: 2, W: 2})
	for _, tt := range []struct {
		name  string
		parts []blockhash.Media
		grids []engine.Grid
		want  [][3]int
	}{
		{"text", nil, nil, [][3]int{{0, 0, 0}, {1, 1, 1}, {2, 2, 2}}},
		{"between texts, wider than high", []blockhash.Media{a}, []engine.Grid{ga}, [][3]int{
			{0, 0, 0}, {1, 1, 1}, {2, 2, 2}, {2, 2, 3}, {2, 2, 4}, {2, 3, 2}, {2, 3, 3}, {2, 3, 4}, {5, 5, 5}, {6, 6, 6}}},
		{"two without text between, the other higher than wide", []blockhash.Media{a, b}, []engine.Grid{ga, gb}, [][3]int{
			{0, 0, 0}, {1, 1, 1}, {2, 2, 2}, {2, 2, 3}, {2, 2, 4}, {2, 3, 2}, {2, 3, 3}, {2, 3, 4},
			{5, 5, 5}, {5, 6, 5}, {5, 7, 5}, {8, 8, 8}, {9, 9, 9}}},
		{"at the beginning, in frames", []blockhash.Media{c}, []engine.Grid{gc}, [][3]int{
			{0, 0, 0}, {0, 0, 1}, {0, 1, 0}, {0, 1, 1}, {1, 0, 0}, {1, 0, 1}, {1, 1, 0}, {1, 1, 1}, {2, 2, 2}, {3, 3, 3}}},
	} {
		p := engine.NewPositions(tt.parts, tt.grids)
		for i, want := range tt.want {
			if got := p.At(i); got != want {
				t.Errorf("%s: position %d is %v, want %v", tt.name, i, got, want)
			}
		}
	}
}

// ropeIndex lists positions as transformers' get_rope_index does: piece by piece, each from
// one above the largest number so far.
func ropeIndex(n int, parts []blockhash.Media, grids []engine.Grid) (out [][3]int) {
	next := 0
	text := func(to int) {
		for len(out) < to {
			out = append(out, [3]int{next, next, next})
			next++
		}
	}
	for i, p := range parts {
		text(p.Start)
		base := next
		for t := range grids[i].T {
			for h := range grids[i].H {
				for w := range grids[i].W {
					out = append(out, [3]int{base + t, base + h, base + w})
					next = max(next, base+t+1, base+h+1, base+w+1)
				}
			}
		}
	}
	text(n)
	return out
}

func TestPositionsAreThoseOfTransformers(t *testing.T) {
	r := seeded(t)
	for range 200 {
		parts, grids, n := scene(r, 1, 1+r.IntN(4))
		p := engine.NewPositions(parts, grids)
		for i, want := range ropeIndex(n, parts, grids) {
			if got := p.At(i); got != want {
				t.Fatalf("%v in %v: position %d is %v, want %v", parts, grids, i, got, want)
			}
			if got := p.At(i); max(got[0], got[1], got[2]) > i {
				t.Fatalf("position %d is %v", i, got)
			}
		}
	}
}

// scene makes images of many shapes, whose keys begin with first, and the length of a prompt
// with them.
func scene(r *rand.Rand, first, images int) (parts []blockhash.Media, grids []engine.Grid, n int) {
	n = r.IntN(9)
	for i := range images {
		g := engine.Grid{T: 1 + r.IntN(2), H: 1 + r.IntN(6), W: 1 + r.IntN(6)}
		parts = append(parts, picture(byte(first+i), n, g.T*g.H*g.W))
		grids = append(grids, g)
		n = parts[len(parts)-1].End + r.IntN(5)
	}
	return parts, grids, n + 3
}

// continued returns the n tokens that the mock backend draws after a prompt whose tokens have
// positions; means are those that the prompt counts for without.
func continued(means []uint32, n int, p *engine.Positions) (out []uint32) {
	means = slices.Clone(means)
	for i, token := range means {
		means[i] = mock.Placed(token, i, p.At(i))
	}
	for range n {
		next := mock.Continue(means, 1, vocab)[0]
		out = append(out, next)
		means = append(means, mock.Placed(next, len(means), p.At(len(means))))
	}
	return out
}

// Tokens have the same positions however a prompt is cut, wherever its beginning was cached,
// after preemptions, and in drafts.
func TestGrids(t *testing.T) {
	r := seeded(t)
	type ask struct {
		r    engine.Request
		want []uint32
	}
	var g gallery
	var asks []ask
	for i := range 24 {
		parts, grids, n := scene(r, 4*i, 1+i%3)
		if i%4 == 3 { // the same beginning as the one before, with another end
			last := &asks[i-1].r
			parts, grids, n = last.Media.Parts, last.Media.Grids, len(last.Tokens)+2
		}
		tokens, means := illustrated(n, parts...)
		q := request(fmt.Sprint(i), tokens, 30)
		q.Media = engine.Media{Parts: parts, Grids: grids, Embed: g.embed}
		asks = append(asks, ask{q, continued(means, 30, engine.NewPositions(parts, grids))})
		if text := mock.Continue(means, 30, vocab); slices.Equal(text, asks[i].want) && !slices.ContainsFunc(grids, func(g engine.Grid) bool { return g == engine.Grid{T: 1, H: 1, W: 1} }) {
			t.Errorf("%d: positions make no difference", i)
		}
	}
	for name, cfg := range map[string]engine.Config{
		"at once":        {NumBlocks: 400},
		"one by one":     {NumBlocks: 400, MaxSeqs: 1},
		"token by token": {NumBlocks: 400, MaxBatchTokens: 1},
		"three tokens":   {NumBlocks: 400, MaxBatchTokens: 3},
		"seven tokens":   {NumBlocks: 400, MaxBatchTokens: 7},
		"preempted":      {NumBlocks: 70, MaxSeqs: 24}, // enough for the longest alone
		"drafts":         {NumBlocks: 400, MaxSeqs: 1, Speculative: cluster.Speculative{Method: cluster.SpeculativeNgram, LookupMin: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			opts := mock.Options{BlockSize: 4, Grids: true}
			if name == "drafts" { // worth it where a step takes the same time for more tokens
				opts.StepTime = func(int, int) time.Duration { return 100 * time.Microsecond }
			}
			e, _ := start(t, cfg, opts)
			for range 2 { // the second time from the cache
				var streams []*engine.Stream
				for _, a := range asks {
					streams = append(streams, submit(t, e, a.r))
				}
				for i, s := range streams {
					if got, last, _ := collect(t, s); !equal(got, asks[i].want) {
						t.Errorf("%d with %v in %v: %v %v, want %v", i, asks[i].r.Media.Parts, asks[i].r.Media.Grids, got, last.Err, asks[i].want)
					}
				}
			}
			st := e.Stats()
			if name == "one by one" && st.CachedTokensTotal == 0 || name == "preempted" && st.PreemptedTotal == 0 || name == "drafts" && st.DraftTokensTotal == 0 {
				t.Errorf("it never happened: %+v", st)
			}
		})
	}
}
