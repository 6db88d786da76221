package engine_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/mock"
)

// chunkLog remembers the entries with more than one token of each step.
type chunkLog struct {
	mu   sync.Mutex
	list [][]engine.BatchSeq
}

func (s *chunkLog) work(batch []engine.BatchSeq) (busy, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var chunks []engine.BatchSeq
	for _, b := range batch {
		if len(b.Tokens) > 1 {
			chunks = append(chunks, engine.BatchSeq{Tokens: slices.Clone(b.Tokens), Start: b.Start, Mutual: b.Mutual})
		}
	}
	s.list = append(s.list, chunks)
	return 0, 0
}

func (s *chunkLog) take() [][]engine.BatchSeq {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.list
	s.list = nil
	return list
}

// Pictures whose positions attend to each other are never cut: the backend refuses a step
// that would. Answers are right, and a step exceeds its budget by one picture at most.
func TestMutualMediaAreNotCut(t *testing.T) {
	const most = 40
	for budget := most; budget < 90; budget += 7 {
		var seen chunkLog
		e, _ := start(t, engine.Config{NumBlocks: 400, MaxBatchTokens: budget}, mock.Options{BlockSize: 8, Mutual: true, Work: seen.work})
		var g gallery
		type run struct {
			s    *engine.Stream
			want []uint32
		}
		var runs []run
		for i := range 12 {
			k := byte(3 * i)
			parts := []blockhash.Media{picture(k, i, most), picture(k+1, i+most, 1+i), picture(k+2, 100, most)}[i%3:]
			tokens, means := illustrated(101+most+i%2*40, parts...)
			r := request(fmt.Sprint(i), tokens, 20)
			r.Tenant = fmt.Sprint(i % 4)
			r.Media = engine.Media{Parts: parts, Embed: g.embed}
			runs = append(runs, run{submit(t, e, r), mock.Continue(means, 20, vocab)})
		}
		for i, r := range runs {
			if got, last, _ := collect(t, r.s); !equal(got, r.want) {
				t.Errorf("budget %d, %d: %v %v, want %v", budget, i, got, last.Err, r.want)
			}
		}
		for _, step := range seen.take() {
			total := 0
			for _, chunk := range step {
				total += len(chunk.Tokens)
			}
			if total > budget+most {
				t.Errorf("budget %d: a step of %d tokens", budget, total)
			}
		}
	}
}

// A chunk ends before a picture that its room does not take whole. What the prefix cache has
// of a picture is used, and the rest comes at once.
func TestMutualMediaInChunks(t *testing.T) {
	var seen chunkLog
	e, _ := start(t, engine.Config{NumBlocks: 64, MaxBatchTokens: 30}, mock.Options{BlockSize: 8, Mutual: true, Work: seen.work})
	var g gallery
	one, two := picture(1, 10, 25), picture(2, 40, 28)
	ask := func(id string, n int, parts ...blockhash.Media) (chunks []string) {
		t.Helper()
		tokens, means := illustrated(n, parts...)
		r := request(id, tokens, 3)
		r.Media = engine.Media{Parts: parts, Embed: g.embed}
		seen.take()
		if got, last, _ := collect(t, submit(t, e, r)); !equal(got, mock.Continue(means, 3, vocab)) {
			t.Errorf("%s: %v %v", id, got, last.Err)
		}
		for _, step := range seen.take() {
			for _, c := range step {
				chunks = append(chunks, fmt.Sprintf("%d-%d%v", c.Start, c.Start+len(c.Tokens), c.Mutual))
			}
		}
		return chunks
	}
	for _, tt := range []struct {
		id    string
		n     int
		parts []blockhash.Media
		want  []string
	}{
		{"alone", 90, []blockhash.Media{one, two}, []string{"0-10[]", "10-40[{10 35}]", "40-70[{40 68}]", "70-90[]"}},
		{"cached to its end", 91, []blockhash.Media{one, two}, []string{"88-91[]"}},
		{"another second", 91, []blockhash.Media{one, picture(3, 40, 28)}, []string{"40-70[{40 68}]", "70-91[]"}},
		{"short", 37, []blockhash.Media{picture(4, 10, 25)}, []string{"8-37[{10 35}]"}},
		{"a part is cached", 60, []blockhash.Media{picture(4, 10, 25)}, []string{"32-60[{10 35}]"}},
	} {
		if got := ask(tt.id, tt.n, tt.parts...); !slices.Equal(got, tt.want) {
			t.Errorf("%s: chunks %q, want %q", tt.id, got, tt.want)
		}
	}
}

// A picture that no room takes whole comes all the same while others decode. A prompt that
// overtakes a longer one leaves it its half.
func TestMutualMediaWait(t *testing.T) {
	var seen chunkLog
	b := mock.New(mock.Options{BlockSize: 8, VocabSize: vocab, Mutual: true, Work: seen.work})
	mem, err := b.AllocKV(64)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	st, err := engine.NewStepper(engine.Config{NumBlocks: 64, MaxBatchTokens: 40, ITLTarget: time.Hour}, b)
	if err != nil {
		t.Fatal(err)
	}
	var g gallery
	ask := func(id string, n, output int, parts ...blockhash.Media) {
		t.Helper()
		tokens, _ := illustrated(n, parts...)
		r := request(id, tokens, output)
		r.Media = engine.Media{Parts: parts, Embed: g.embed}
		submit(t, st.Engine, r)
	}
	step := func(want ...string) {
		t.Helper()
		if _, err := st.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range seen.take() {
			for _, c := range s {
				got = append(got, fmt.Sprintf("%d of %d", len(c.Tokens), c.Tokens[0]))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("chunks %q, want %q", got, want)
		}
	}
	ask("talks", 2, 300)
	step("2 of 20")
	ask("looks", 42, 300, picture(1, 0, 40))
	step("40 of 7")
	step("2 of 60")
	ask("long", 250, 1)
	ask("overtakes", 30, 1, picture(2, 0, 25))
	step("38 of 20") // a half is too little for the picture
	step("38 of 58")
}

// A picture that no step can compute is refused when it comes.
func TestMutualMediaTooLong(t *testing.T) {
	for _, mutual := range []bool{false, true} {
		e, _ := start(t, engine.Config{NumBlocks: 64, MaxBatchTokens: 30}, mock.Options{BlockSize: 8, Mutual: mutual})
		var g gallery
		p := picture(1, 4, 31)
		tokens, _ := illustrated(50, p)
		r := request("r", tokens, 3)
		r.Media = engine.Media{Parts: []blockhash.Media{p}, Embed: g.embed}
		s, err := e.Submit(t.Context(), r)
		if refused := errors.Is(err, engine.ErrBadRequest) && strings.Contains(err.Error(), "max_num_batched_tokens is 30"); refused != mutual {
			t.Errorf("mutual %v: %v", mutual, err)
		}
		if err == nil {
			collect(t, s)
		}
		held, err := e.Prefill(t.Context(), engine.PrefillRequest{ID: "p", Tokens: tokens, Media: r.Media})
		if mutual != errors.Is(err, engine.ErrBadRequest) {
			t.Errorf("prefill, mutual %v: %v", mutual, err)
		}
		if err == nil {
			held.Release()
		}
	}
}
