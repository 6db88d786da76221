package cpu

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/enginetest"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
)

// illustrated is a prompt in which rows stand in place of some tokens.
type illustrated struct {
	tokens []uint32
	rows   [][]float32 // by position, nil for tokens
	// runs are the images that attend to each other both ways.
	runs      []engine.Span
	media     engine.Media      // without what embeds
	positions *engine.Positions // nil: each token's place
}

// entry is the part of the prompt from start to end, as an engine would ask for it.
func (p illustrated) entry(start, end int) engine.BatchSeq {
	s := engine.BatchSeq{Tokens: p.tokens[start:end], Start: start, Rows: p.rows[start:end], Positions: p.positions}
	for _, run := range p.runs {
		if run.End > start && run.Start < end {
			s.Mutual = append(s.Mutual, run)
		}
	}
	return s
}

// cut returns the run that a chunk up to end would cut, if there is one.
func (p illustrated) cut(end int) (engine.Span, bool) {
	i := slices.IndexFunc(p.runs, func(run engine.Span) bool { return run.Start < end && end < run.End })
	if i < 0 {
		return engine.Span{}, false
	}
	return p.runs[i], true
}

// draw makes a prompt of n tokens with runs of random rows.
func draw(rng *rand.Rand, n, width int, runs ...engine.Span) illustrated {
	p := illustrated{tokens: prompt(rng.Uint64(), n, 200), rows: make([][]float32, n), runs: runs}
	for _, run := range runs {
		for i := run.Start; i < run.End; i++ {
			p.rows[i] = make([]float32, width)
			for d := range p.rows[i] {
				p.rows[i][d] = float32(rng.NormFloat64())
			}
		}
	}
	return p
}

// TestMutualBits: the logits after a prompt whose images are seen both ways are the same bits
// wherever it is cut between images, where a part of an image is in the cache, in blocks of
// any size and with any type of KV; and whoever shares the batch.
func TestMutualBits(t *testing.T) {
	for i, kv := range []string{KVF32, KVBF16, KVInt8} {
		t.Run(kv, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(i), 5))
			spec := modeltest.Vision()["gemma3_text"]
			m := modeltest.Open(t, spec)
			for _, size := range []int{8, 7} {
				opts := Options{BlockSize: size, KVDType: kv}
				p := draw(rng, 60, spec.Hidden, engine.Span{Start: 3, End: 22}, engine.Span{Start: 22, End: 31}, engine.Span{Start: 40, End: 59})
				r := newRig(t, m, 1+i, 40, opts)
				want, got, beside := r.newLogits(), r.newLogits(), r.newLogits()
				step := func(start, end, block int) {
					e := p.entry(start, end)
					e.Blocks = table(block, 20)
					if end == len(p.tokens) {
						e.Logits = got
					}
					r.step(t, e)
				}
				step(0, 60, 0)
				copy(want, got)
				for end := 1; end < 60; end++ {
					what := fmt.Sprintf("blocks of %d, cut at %d", size, end)
					clear(got)
					if _, cut := p.cut(end); !cut {
						step(0, end, 20)
						step(end, 60, 20)
					} else {
						step(end, 60, 0) // the KV before it is that of the whole
						what += ", cached to there"
					}
					sameBits(t, what, got, want)
				}
				text := prompt(9, 70, 200)
				r.step(t, engine.BatchSeq{Tokens: text, Blocks: table(20, 20), Logits: beside})
				alone := slices.Clone(beside)
				e := p.entry(0, 60)
				e.Blocks, e.Logits = table(0, 20), got
				r.step(t, engine.BatchSeq{Tokens: text, Blocks: table(20, 20), Logits: beside}, e)
				sameBits(t, "in a batch", got, want)
				sameBits(t, "text beside it", beside, alone)
			}
		})
	}
}

// TestMutualPasses: an image that passes would cut is computed in one, even if it is longer
// than a pass.
func TestMutualPasses(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	spec := modeltest.Vision()["gemma3_text"]
	m := modeltest.Open(t, spec)
	for _, run := range []engine.Span{{Start: 400, End: 700}, {Start: passTokens, End: 700}, {Start: 3, End: 560}, {Start: 0, End: passTokens}, {Start: 100, End: 1020}} {
		p := draw(rng, 1100, spec.Hidden, run)
		r := newRig(t, m, 2, 140, Options{BlockSize: 16})
		want, got := r.newLogits(), r.newLogits()
		pieces := []int{0, run.Start, run.End, 1100}
		for i, end := range pieces[1:] {
			if end > pieces[i] {
				e := p.entry(pieces[i], end)
				e.Blocks, e.Logits = table(0, 70), want
				r.step(t, e)
			}
		}
		e := p.entry(0, 1100)
		e.Blocks, e.Logits = table(70, 70), got
		batch := []engine.BatchSeq{{Tokens: p.tokens[:9], Blocks: table(0, 70)}, e}
		r.step(t, batch...)
		sameBits(t, fmt.Sprint(run), got, want)
		var c cursor
		for r.pass.fill(&c, batch, 16, 2) {
			if n := len(r.pass.tokens); n > max(passTokens, run.End-run.Start) {
				t.Errorf("%v: a pass of %d tokens", run, n)
			}
		}
	}
}

// TestMutualUnderScheduling: an engine gives the recorded answers to prompts with images,
// whatever the room in a step, and whatever of an image is in the prefix cache.
func TestMutualUnderScheduling(t *testing.T) {
	if patience.RaceDetector {
		t.Skip(sameGoroutines)
	}
	for _, name := range []string{"gemma3-one-image", "gemma3-two-images"} {
		g := readGolden(t, "testdata/families/"+name+".json")
		m := openGolden(t, g)
		p := g.illustrated(t, newEncoder(t, newTestDevice(t, 2), m))
		media := engine.Media{Embed: func(_ context.Context, parts []blockhash.Media) (rows [][][]float32, err error) {
			for _, part := range parts {
				rows = append(rows, p.rows[part.Start:part.End])
			}
			return rows, nil
		}}
		most := 0
		for i, run := range p.runs {
			media.Parts = append(media.Parts, blockhash.Media{Start: run.Start, End: run.End, Key: blockhash.Key{byte(i + 1)}})
			most = max(most, run.End-run.Start)
		}
		for budget := most; budget < len(g.Prompt)+6; budget += 6 {
			r := newRig(t, m, 2, 64, Options{BlockSize: 4})
			e := enginetest.Start(t, r.Backend, engine.Config{NumBlocks: 64, MaxBatchTokens: budget})
			ask := func(id string, n int, beside bool) *engine.Stream {
				req := engine.Request{ID: id, Tenant: id, Tokens: g.Prompt[:n], Media: engine.Media{Embed: media.Embed}, Stop: protocol.StopConditions{MaxTokens: 64}}
				for _, part := range media.Parts {
					if part.End <= n {
						req.Media.Parts = append(req.Media.Parts, part)
					}
				}
				if beside {
					req.Tokens, req.Media = prompt(uint64(budget), 30, 150), engine.Media{}
				}
				return enginetest.Submit(t, e, req)
			}
			beside := ask("text", 0, true)
			first := ask("first", len(g.Prompt), false)
			for id, s := range map[string]*engine.Stream{"at once": first, "again": ask("again", len(g.Prompt), false)} {
				if got := enginetest.Read(t, s); !slices.Equal(got, g.Greedy) {
					t.Errorf("%s, steps of %d, %s: tokens %v, want %v", name, budget, id, got, g.Greedy)
				}
			}
			enginetest.Read(t, beside)
			if _, err := e.ClearCache(t.Context()); err != nil {
				t.Fatal(err)
			}
			// The prompt up to one token behind its first image leaves a part of that in full blocks.
			enginetest.Read(t, ask("short", p.runs[0].End+1, false))
			if got := enginetest.Read(t, ask("longer", len(g.Prompt), false)); !slices.Equal(got, g.Greedy) {
				t.Errorf("%s, steps of %d, cached in part: tokens %v, want %v", name, budget, got, g.Greedy)
			}
		}
	}
}
