package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/mock"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
)

// placeholder stands in prompts where an image is.
const placeholder = 7

// picture is an image whose embeddings follow from its number.
func picture(n byte, start, rows int) blockhash.Media {
	return blockhash.Media{Start: start, End: start + rows, Key: blockhash.Key{n}}
}

func rowsOf(p blockhash.Media) (rows [][]float32) {
	for i := range p.End - p.Start {
		rows = append(rows, []float32{float32(p.Key[0]), float32(i), 1.5, -2})
	}
	return rows
}

// gallery gives embeddings and remembers for which pictures it was asked.
type gallery struct {
	mu    sync.Mutex
	asked []byte
}

func (g *gallery) embed(_ context.Context, parts []blockhash.Media) (rows [][][]float32, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range parts {
		g.asked = append(g.asked, p.Key[0])
		rows = append(rows, rowsOf(p))
	}
	return rows, nil
}

func (g *gallery) take() []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	asked := g.asked
	g.asked = nil
	return asked
}

// illustrated makes a prompt of n tokens with pictures, and the tokens that the mock backend
// takes their embeddings for.
func illustrated(n int, parts ...blockhash.Media) (tokens, means []uint32) {
	for i := range n {
		tokens = append(tokens, uint32(20+i%50))
	}
	means = slices.Clone(tokens)
	for _, p := range parts {
		for i, row := range rowsOf(p) {
			tokens[p.Start+i], means[p.Start+i] = placeholder, mock.TokenOf(row)
		}
	}
	return tokens, means
}

func TestMediaAreComputed(t *testing.T) {
	const n = 16
	album := []blockhash.Media{picture(1, 3, 40), picture(2, 43, 17), picture(1, 100, 40)}
	for name, cfg := range map[string]engine.Config{
		"at once":   {NumBlocks: 64},
		"in chunks": {NumBlocks: 64, MaxBatchTokens: 13},
	} {
		t.Run(name, func(t *testing.T) {
			e, _ := start(t, cfg, mock.Options{BlockSize: 8})
			var g gallery
			ask := func(id string, parts []blockhash.Media) {
				t.Helper()
				tokens, means := illustrated(150, parts...)
				r := request(id, tokens, n)
				r.Media = engine.Media{Parts: parts, Embed: g.embed}
				got, last, _ := collect(t, submit(t, e, r))
				if want := mock.Continue(means, n, vocab); !equal(got, want) || last.Err != nil {
					t.Errorf("%s: %v %v, want %v", id, got, last.Err, want)
				}
			}
			ask("first", album)
			if got := g.take(); string(got) != "\x01\x02\x01" {
				t.Errorf("asked for %v", got)
			}
			ask("again", album)
			if got := g.take(); len(got) != 0 {
				t.Errorf("asked for %v, which are cached", got)
			}
			ask("another end", []blockhash.Media{album[0], album[1], picture(3, 100, 40)})
			if got := g.take(); string(got) != "\x03" {
				t.Errorf("asked for %v", got)
			}
			ask("another beginning", []blockhash.Media{picture(4, 3, 40), album[1], album[2]})
			if got := g.take(); string(got) != "\x04\x02\x01" {
				t.Errorf("asked for %v", got)
			}
			ask("text", nil)
		})
	}
}

// A picture whose first part is cached is asked for whole, and computed from where it is not.
func TestMediaCachedInPart(t *testing.T) {
	e, _ := start(t, engine.Config{NumBlocks: 64}, mock.Options{BlockSize: 8})
	var g gallery
	p := picture(1, 4, 20)
	ask := func(id string, n int) {
		t.Helper()
		tokens, means := illustrated(n, p)
		r := request(id, tokens, 5)
		r.Media = engine.Media{Parts: []blockhash.Media{p}, Embed: g.embed}
		got, _, first := collect(t, submit(t, e, r))
		if want := mock.Continue(means, 5, vocab); !equal(got, want) {
			t.Errorf("%s: %v, want %v", id, got, want)
		}
		if id == "longer" && first.Cached != 16 {
			t.Errorf("%d tokens were cached", first.Cached)
		}
	}
	ask("short", 24) // the last token is the picture's; two blocks stay findable but that of the last token
	ask("longer", 24)
	if got := g.take(); string(got) != "\x01\x01" {
		t.Errorf("asked for %v", got)
	}
}

// A picture that is cached to its end is not asked for, though the next block is computed.
func TestMediaCachedToTheirEnd(t *testing.T) {
	e, _ := start(t, engine.Config{NumBlocks: 64}, mock.Options{BlockSize: 8})
	var g gallery
	p := picture(1, 8, 16) // which ends with a block
	for i, want := range []string{"\x01", ""} {
		tokens, means := illustrated(30, p)
		tokens[29], means[29] = uint32(100+i), uint32(100+i)
		r := request(fmt.Sprint(i), tokens, 5)
		r.Media = engine.Media{Parts: []blockhash.Media{p}, Embed: g.embed}
		if got, _, _ := collect(t, submit(t, e, r)); !equal(got, mock.Continue(means, 5, vocab)) {
			t.Errorf("%d: %v", i, got)
		}
		if asked := g.take(); string(asked) != want {
			t.Errorf("%d: asked for %v", i, asked)
		}
	}
}

func TestMediaAfterPreemption(t *testing.T) {
	e, _ := start(t, engine.Config{NumBlocks: 20, MaxSeqs: 8}, mock.Options{BlockSize: 8})
	var g gallery
	type run struct {
		s    *engine.Stream
		want []uint32
	}
	// Whether the blocks of a preempted sequence are reused before it goes on depends on who
	// comes when: it happens in a few rounds.
	asked, n := 0, 0
	for round := 0; asked <= n; round++ {
		if round == 50 {
			t.Fatalf("%d preemptions: none needed its picture again", e.Stats().PreemptedTotal)
		}
		var runs []run
		for range 6 {
			n++
			p := picture(byte(n), 2, 30)
			tokens, means := illustrated(40, p)
			r := request(fmt.Sprint(n), tokens, 60)
			r.Media = engine.Media{Parts: []blockhash.Media{p}, Embed: g.embed}
			runs = append(runs, run{submit(t, e, r), mock.Continue(means, 60, vocab)})
		}
		for i, r := range runs {
			if got, last, _ := collect(t, r.s); !equal(got, r.want) {
				t.Errorf("%d: %v %v, want %v", i, got, last.Err, r.want)
			}
		}
		asked += len(g.take())
	}
}

// While a sequence waits for embeddings it holds blocks, which go back however that ends.
func TestMediaThatDoNotCome(t *testing.T) {
	e, _ := start(t, engine.Config{NumBlocks: 64}, mock.Options{BlockSize: 8})
	p := picture(1, 4, 20)
	tokens, _ := illustrated(40, p)
	waiting := func(t *testing.T, e *engine.Engine) {
		t.Helper()
		patience.Until(t, "the sequence holds blocks and waits", func() bool {
			st := e.Stats()
			return st.EncodeWait == 1 && st.KVActive == 5
		})
	}
	for _, tc := range []struct {
		name  string
		embed func(context.Context, []blockhash.Media) ([][][]float32, error)
		want  string
	}{
		{"refused", func(context.Context, []blockhash.Media) ([][][]float32, error) { return nil, errors.New("no encoder") }, "no embeddings: no encoder"},
		{"too few parts", func(context.Context, []blockhash.Media) ([][][]float32, error) { return nil, nil }, "0 came for 1 parts"},
		{"too few rows", func(context.Context, []blockhash.Media) ([][][]float32, error) {
			return [][][]float32{rowsOf(picture(1, 0, 19))}, nil
		},
			"part 0 has 19 rows, 20 stand in the prompt"},
		{"none at the beginning", func(_ context.Context, m []blockhash.Media) ([][][]float32, error) {
			rows := rowsOf(m[0])
			rows[0] = nil
			return [][][]float32{rows}, nil
		}, "part 0 has rows of 0 values, the model's are 4"},
		{"too wide", func(_ context.Context, m []blockhash.Media) ([][][]float32, error) {
			rows := rowsOf(m[0])
			rows[19] = make([]float32, 5)
			return [][][]float32{rows}, nil
		}, "part 0 has rows of 5 values, the model's are 4"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := request(tc.name, tokens, 5)
			r.Media = engine.Media{Parts: []blockhash.Media{p}, Embed: tc.embed}
			_, last, _ := collect(t, submit(t, e, r))
			if !errors.Is(last.Err, engine.ErrEmbeddings) || !strings.Contains(last.Err.Error(), tc.want) {
				t.Errorf("%v, want %q", last.Err, tc.want)
			}
		})
	}
	hang := func(ctx context.Context, _ []blockhash.Media) ([][][]float32, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	t.Run("cancelled", func(t *testing.T) {
		r := request("hangs", tokens, 5)
		r.Media = engine.Media{Parts: []blockhash.Media{p}, Embed: hang}
		s := submit(t, e, r)
		waiting(t, e)
		list, _, err := e.Sequences(t.Context(), 5)
		if err != nil || len(list) != 1 || list[0].State != cluster.SequenceEncoding {
			t.Errorf("open: %+v %v", list, err)
		}
		s.Cancel()
		if _, last, _ := collect(t, s); last.Finish != protocol.FinishCancelled {
			t.Errorf("ended by %v", last.Finish)
		}
	})
	t.Run("come after the end", func(t *testing.T) { // and change nothing
		release := make(chan struct{})
		r := request("late rows", tokens, 5)
		r.Media = engine.Media{Parts: []blockhash.Media{p}, Embed: func(context.Context, []blockhash.Media) ([][][]float32, error) {
			<-release
			return [][][]float32{rowsOf(p)}, nil
		}}
		s := submit(t, e, r)
		waiting(t, e)
		s.Cancel()
		if _, last, _ := collect(t, s); last.Finish != protocol.FinishCancelled {
			t.Errorf("ended by %v", last.Finish)
		}
		before := e.Stats()
		close(release)
		collect(t, submit(t, e, request("another", []uint32{1, 2, 3}, 30)))
		if st := e.Stats(); st.Running != 0 || st.EncodeWait != 0 || st.ComputedTotal-before.ComputedTotal > 33 {
			t.Errorf("what was cancelled runs: %+v", st)
		}
	})
	t.Run("prefill cancelled", func(t *testing.T) {
		ctx, cancel := contextWithCause(t)
		done := make(chan error, 1)
		go func() {
			_, err := e.Prefill(ctx, engine.PrefillRequest{ID: "p", Tokens: tokens, Media: engine.Media{Parts: []blockhash.Media{p}, Embed: hang}})
			done <- err
		}()
		waiting(t, e)
		gone := errors.New("gone")
		cancel(gone)
		if err := <-done; !errors.Is(err, gone) {
			t.Errorf("ended by %v", err)
		}
	})
	t.Run("given back", func(t *testing.T) {
		r := request("back", tokens, 5)
		r.Media = engine.Media{Parts: []blockhash.Media{p}, Embed: hang}
		s := submit(t, e, r)
		waiting(t, e)
		if n, err := e.GiveBack(t.Context()); n != 1 || err != nil {
			t.Errorf("%d given back: %v", n, err)
		}
		if _, last, _ := collect(t, s); !errors.Is(last.Err, engine.ErrDraining) {
			t.Errorf("ended by %v", last.Err)
		}
	})
	t.Run("engine stops", func(t *testing.T) {
		b := mock.New(mock.Options{BlockSize: 8, VocabSize: vocab})
		mem, err := b.AllocKV(64)
		if err != nil {
			t.Fatal(err)
		}
		defer mem.Close()
		e, err := engine.New(engine.Config{NumBlocks: 64}, b)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := contextWithCause(t)
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		r := request("late", tokens, 5)
		r.Media = engine.Media{Parts: []blockhash.Media{p}, Embed: hang}
		s := submit(t, e, r)
		waiting(t, e)
		if _, last, _ := collect(t, submit(t, e, request("text", []uint32{1, 2, 3}, 3))); last.Finish != protocol.FinishLength {
			t.Errorf("a prompt without pictures beside it: %v", last.Err)
		}
		over := errors.New("over")
		cancel(over)
		if err := <-ended; !errors.Is(err, over) {
			t.Errorf("ended by %v", err)
		}
		if _, last, _ := collect(t, s); !errors.Is(last.Err, engine.ErrClosed) {
			t.Errorf("the sequence ended by %v", last.Err)
		}
		if err := e.Check(t.Context(), true); err != nil {
			t.Error(err)
		}
	})
}

func TestMediaRefused(t *testing.T) {
	e, _ := start(t, engine.Config{NumBlocks: 64}, mock.Options{BlockSize: 8})
	var g gallery
	tokens, _ := illustrated(40)
	one := 1
	for _, tc := range []struct {
		name   string
		parts  []blockhash.Media
		embed  bool
		change func(*engine.Request)
	}{
		{"backwards", []blockhash.Media{picture(1, 10, 5), picture(2, 5, 5)}, true, nil},
		{"overlapping", []blockhash.Media{picture(1, 10, 5), picture(2, 14, 5)}, true, nil},
		{"empty", []blockhash.Media{picture(1, 10, 0)}, true, nil},
		{"negative", []blockhash.Media{picture(1, -1, 5)}, true, nil},
		{"beyond", []blockhash.Media{picture(1, 36, 5)}, true, nil},
		{"nothing embeds", []blockhash.Media{picture(1, 0, 5)}, false, nil},
		{"in the output", []blockhash.Media{picture(1, 36, 4)}, true, func(r *engine.Request) { r.Generated = 1 }},
		{"log probabilities", []blockhash.Media{picture(1, 0, 5)}, true, func(r *engine.Request) { r.Output.PromptLogprobs = &one }},
	} {
		r := request(tc.name, tokens, 5)
		r.Media.Parts = tc.parts
		if tc.embed {
			r.Media.Embed = g.embed
		}
		if tc.change != nil {
			tc.change(&r)
		}
		if _, err := e.Submit(t.Context(), r); !errors.Is(err, engine.ErrBadRequest) {
			t.Errorf("%s: %v", tc.name, err)
		}
		if tc.change != nil {
			continue
		}
		if _, err := e.Prefill(t.Context(), engine.PrefillRequest{ID: tc.name, Tokens: tokens, Media: r.Media}); !errors.Is(err, engine.ErrBadRequest) {
			t.Errorf("prefill, %s: %v", tc.name, err)
		}
	}
}

// Images have grids that fit where the backend places them in grids, and none where not.
func TestGridsRefused(t *testing.T) {
	var g gallery
	tokens, _ := illustrated(40)
	parts := []blockhash.Media{picture(1, 2, 6), picture(2, 20, 4)}
	for _, tc := range []struct {
		name  string
		grids []engine.Grid
		want  bool // refused
		plain bool // backend
	}{
		{"fit", []engine.Grid{{T: 1, H: 2, W: 3}, {T: 1, H: 1, W: 4}}, false, false},
		{"none", nil, true, false},
		{"of one", []engine.Grid{{T: 1, H: 2, W: 3}}, true, false},
		{"of three", []engine.Grid{{T: 1, H: 2, W: 3}, {T: 1, H: 1, W: 4}, {T: 1, H: 1, W: 1}}, true, false},
		{"too small", []engine.Grid{{T: 1, H: 2, W: 3}, {T: 1, H: 1, W: 3}}, true, false},
		{"too large", []engine.Grid{{T: 1, H: 2, W: 4}, {T: 1, H: 1, W: 4}}, true, false},
		{"no side", []engine.Grid{{T: 0, H: 2, W: 3}, {T: 1, H: 1, W: 4}}, true, false},
		{"negative sides", []engine.Grid{{T: 1, H: -2, W: -3}, {T: 1, H: 1, W: 4}}, true, false},
		{"sides whose product wraps around", []engine.Grid{{T: 1 << 32, H: 1 << 32, W: 6}, {T: 1, H: 1, W: 4}}, true, false},
		{"for text alone", []engine.Grid{{T: 1, H: 2, W: 3}, {T: 1, H: 1, W: 4}}, true, true},
	} {
		e, _ := start(t, engine.Config{NumBlocks: 64}, mock.Options{BlockSize: 8, Grids: !tc.plain})
		m := engine.Media{Parts: parts, Grids: tc.grids, Embed: g.embed}
		r := request(tc.name, tokens, 5)
		r.Media = m
		s, err := e.Submit(t.Context(), r)
		if errors.Is(err, engine.ErrBadRequest) != tc.want {
			t.Errorf("%s: %v", tc.name, err)
		}
		if err == nil {
			collect(t, s)
		}
		held, err := e.Prefill(t.Context(), engine.PrefillRequest{ID: tc.name, Tokens: tokens, Media: m})
		if errors.Is(err, engine.ErrBadRequest) != tc.want {
			t.Errorf("prefill, %s: %v", tc.name, err)
		}
		if err == nil {
			held.Release()
		}
	}
}

// A prompt that is prefilled elsewhere is embedded there; one that falls back, here.
func TestMediaRemotePrefill(t *testing.T) {
	for i, grids := range [][]engine.Grid{nil, nil, {{T: 1, H: 3, W: 11}}} {
		fall := i == 1
		p := startPair(t, engine.Config{NumBlocks: 64}, engine.Config{NumBlocks: 64}, mock.Options{BlockSize: 8, Grids: grids != nil})
		var here, there gallery
		part := picture(9, 5, 33)
		tokens, means := illustrated(60, part)
		r := request("r", tokens, 8)
		r.Media = engine.Media{Parts: []blockhash.Media{part}, Grids: grids, Embed: here.embed}
		r.Decide = always
		r.Remote = func(v *engine.Reservation) {
			if fall {
				v.Fallback("no")
				return
			}
			held, err := p.prefill.Prefill(v.Context(), engine.PrefillRequest{
				ID: "r", Tokens: v.Prompt[:v.Wanted()], Media: engine.Media{Parts: r.Media.Parts, Grids: grids, Embed: there.embed},
			})
			if err != nil {
				v.Release(err)
				return
			}
			defer held.Release()
			for i := range v.Blocks {
				copy(p.block(p.decodeMem, v.Blocks[i]), p.block(p.prefillMem, held.Blocks[i]))
			}
			v.Start("there")
		}
		got, last, _ := collect(t, submit(t, p.decode, r))
		if want := continued(means, 8, engine.NewPositions(r.Media.Parts, grids)); !equal(got, want) {
			t.Errorf("fall back %v: %v %v, want %v", fall, got, last.Err, want)
		}
		if a, b := len(here.take()), len(there.take()); (a == 1) != fall || (b == 1) == fall {
			t.Errorf("fall back %v: embedded %d here, %d there", fall, a, b)
		}
	}
}

// A sequence that moves takes its pictures along.
func TestMediaMove(t *testing.T) {
	for _, grids := range [][]engine.Grid{nil, {{T: 1, H: 11, W: 3}}} {
		testMediaMove(t, grids)
	}
}

func testMediaMove(t *testing.T, grids []engine.Grid) {
	const n = 30
	s := sites(t, 2, engine.Config{NumBlocks: 64}, mock.Options{BlockSize: 8, Grids: grids != nil, StepTime: func(int, int) time.Duration { return time.Millisecond }})
	var g gallery
	p := picture(3, 5, 33)
	tokens, means := illustrated(60, p)
	r := request("m", tokens, n)
	r.Media = engine.Media{Parts: []blockhash.Media{p}, Grids: grids, Embed: g.embed}
	from := submit(t, s[0].Engine, r)
	out, err := from.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	to, err := move(t, s[0], s[1], r, 8, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	rest, _, _ := collect(t, from)
	more, last, _ := collect(t, to)
	got := append(append(out.Tokens, rest...), more...)
	if want := continued(means, n, engine.NewPositions(r.Media.Parts, grids)); !equal(got, want) {
		t.Errorf("%v %v, want %v", got, last.Err, want)
	}
	// What comes after it at the target finds the picture's blocks.
	again := request("again", tokens, 3)
	again.Media = engine.Media{Parts: r.Media.Parts, Grids: grids, Embed: g.embed}
	g.take()
	if _, _, first := collect(t, submit(t, s[1].Engine, again)); first.Cached < 48 || len(g.take()) != 0 {
		t.Errorf("%d tokens were cached", first.Cached)
	}
}
