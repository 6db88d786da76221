package engine_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/mock"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
)

// Many requests at once must each give what they give alone, whatever the batch,
// the chunks, the cache and preemption do.
func TestOutputDoesNotDependOnScheduling(t *testing.T) {
	for _, tc := range []struct {
		name   string
		cfg    engine.Config
		opts   mock.Options
		want   func(st string, preempted, cached uint64) error
		shared int // leading tokens all prompts have in common
	}{
		{name: "plenty of room", cfg: engine.Config{NumBlocks: 512, MaxSeqs: 16}, opts: mock.Options{BlockSize: 16}},
		{name: "chunks of seven tokens", cfg: engine.Config{NumBlocks: 512, MaxSeqs: 16, MaxBatchTokens: 7}, opts: mock.Options{BlockSize: 16}},
		{name: "one at a time", cfg: engine.Config{NumBlocks: 64, MaxSeqs: 1}, opts: mock.Options{BlockSize: 16}},
		{name: "shared prefix", cfg: engine.Config{NumBlocks: 256, MaxSeqs: 8}, opts: mock.Options{BlockSize: 16}, shared: 100,
			want: func(_ string, _, cached uint64) error {
				if cached == 0 {
					return errors.New("the shared prefix was never found in the cache")
				}
				return nil
			}},
		{name: "pool too small for all", cfg: engine.Config{NumBlocks: 24, MaxSeqs: 12}, opts: mock.Options{BlockSize: 16},
			want: func(_ string, preempted, _ uint64) error {
				if preempted == 0 {
					return errors.New("nothing was preempted, so the case tests nothing")
				}
				return nil
			}},
		{name: "blocks of 128", cfg: engine.Config{NumBlocks: 40, MaxSeqs: 8}, opts: mock.Options{BlockSize: 128}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := seeded(t)
			e, _ := start(t, tc.cfg, tc.opts)
			common := prompt(r, tc.shared)
			type job struct {
				stream *engine.Stream
				want   []uint32
			}
			var jobs []job
			for i := range 40 {
				p := append(append([]uint32{}, common...), prompt(r, 1+r.IntN(150))...)
				n := 1 + r.IntN(60)
				req := request(fmt.Sprint("r", i), p, n)
				req.Tenant = fmt.Sprint(i * i % 7) // four tenants, with 6 to 12 each
				jobs = append(jobs, job{submit(t, e, req), mock.Continue(p, n, vocab)})
			}
			for i, j := range jobs {
				got, last, first := collect(t, j.stream)
				if !equal(got, j.want) {
					t.Errorf("request %d: got %v, want %v", i, got, j.want)
				}
				if last.Finish != protocol.FinishLength {
					t.Errorf("request %d: finished with %q %v, want length", i, last.Finish, last.Err)
				}
				if first == nil {
					t.Errorf("request %d: no first-token report", i)
				}
			}
			st := e.Stats()
			if st.RequestsTotal != 40 || st.FinishedTotal != 40 || st.Running+st.Waiting != 0 {
				t.Errorf("stats after all: %+v", st)
			}
			if tc.want != nil {
				if err := tc.want("", st.PreemptedTotal, st.CachedTokensTotal); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestSecondTurnIsCached(t *testing.T) {
	r := seeded(t)
	e, _ := start(t, engine.Config{NumBlocks: 64}, mock.Options{BlockSize: 16})
	p := prompt(r, 130)
	out, _, first := collect(t, submit(t, e, request("a", p, 20)))
	if first.Cached != 0 {
		t.Errorf("first turn: %d tokens cached, want 0", first.Cached)
	}
	p2 := append(append(append([]uint32{}, p...), out...), prompt(r, 10)...)
	got, _, first := collect(t, submit(t, e, request("b", p2, 5)))
	// 150 tokens known, the last output token has no KV: 149/16 = 9 blocks.
	if first.Cached != 144 {
		t.Errorf("second turn: %d tokens cached, want 144", first.Cached)
	}
	if want := mock.Continue(p2, 5, vocab); !equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if n, err := e.ClearCache(t.Context()); err != nil || n == 0 {
		t.Errorf("clear: %d blocks, %v", n, err)
	}
	_, _, first = collect(t, submit(t, e, request("c", p2, 1)))
	if first.Cached != 0 {
		t.Errorf("after clear: %d tokens cached, want 0", first.Cached)
	}
}

func TestStopTokens(t *testing.T) {
	r := seeded(t)
	e, _ := start(t, engine.Config{NumBlocks: 64}, mock.Options{BlockSize: 16})
	p := prompt(r, 20)
	free := mock.Continue(p, 30, vocab)
	stop := free[10]
	cut := 0
	for free[cut] != stop {
		cut++
	}
	t.Run("ends before the stop token", func(t *testing.T) {
		q := request("a", p, 30)
		q.Stop.StopTokenIDs = []uint32{stop}
		got, last, _ := collect(t, submit(t, e, q))
		if last.Finish != protocol.FinishStop || !equal(got, free[:cut]) {
			t.Errorf("got %v %q, want %v stop", got, last.Finish, free[:cut])
		}
	})
	t.Run("min_tokens suppresses it", func(t *testing.T) {
		q := request("b", p, 30)
		q.Stop.StopTokenIDs, q.Stop.MinTokens = []uint32{stop}, 25
		got, _, _ := collect(t, submit(t, e, q))
		if len(got) < 25 {
			t.Errorf("ended after %d tokens, min_tokens is 25", len(got))
		}
		for i, id := range got[:25] {
			if id == stop {
				t.Errorf("stop token at position %d", i)
			}
		}
	})
	t.Run("context length", func(t *testing.T) {
		long := prompt(r, 64*16-5)
		got, last, _ := collect(t, submit(t, e, request("c", long, 100)))
		if len(got) != 5 || last.Finish != protocol.FinishLength {
			t.Errorf("got %d tokens %q, want the 5 that fit and length", len(got), last.Finish)
		}
	})
}

// A migrated request continues with the draws it would have had.
func TestMigrationContinuesSampling(t *testing.T) {
	r := seeded(t)
	e, _ := start(t, engine.Config{NumBlocks: 64}, mock.Options{BlockSize: 16})
	p := prompt(r, 40)
	q := request("whole", p, 30)
	q.Sampling = protocol.SamplingOptions{Temperature: 0.9, TopK: 50, TopP: 0.95, Seed: 7}
	whole, _, _ := collect(t, submit(t, e, q))
	q.ID, q.Tokens, q.Generated = "rest", append(append([]uint32{}, p...), whole[:12]...), 12
	q.Stop.MaxTokens = 18
	rest, _, _ := collect(t, submit(t, e, q))
	if !equal(rest, whole[12:]) {
		t.Errorf("rest %v, want %v", rest, whole[12:])
	}
}

func TestRefusals(t *testing.T) {
	e, _ := start(t, engine.Config{NumBlocks: 4, MaxWaiting: 2, MaxSeqs: 1},
		mock.Options{BlockSize: 16, StepTime: func(int, int) time.Duration { return 5 * time.Millisecond }})
	for _, tc := range []struct {
		name string
		req  engine.Request
		want error
	}{
		{"empty prompt", request("a", nil, 1), engine.ErrBadRequest},
		{"unknown token", request("b", []uint32{vocab}, 1), engine.ErrBadRequest},
		{"no max_tokens", request("c", []uint32{1}, 0), engine.ErrBadRequest},
		{"longer than the pool", request("d", make([]uint32, 64), 1), engine.ErrTooLong},
		{"all generated", engine.Request{ID: "e", Tokens: []uint32{1}, Generated: 1, Stop: protocol.StopConditions{MaxTokens: 1}}, engine.ErrBadRequest},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := e.Submit(t.Context(), tc.req); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
	t.Run("queue full and duplicate id", func(t *testing.T) {
		running := submit(t, e, request("run", []uint32{1}, 60))
		patience.Until(t, "it runs", func() bool { return e.Stats().Running > 0 })
		w1, w2 := submit(t, e, request("w1", []uint32{1}, 1)), submit(t, e, request("w2", []uint32{1}, 1))
		if _, err := e.Submit(t.Context(), request("w3", []uint32{1}, 1)); !errors.Is(err, engine.ErrQueueFull) {
			t.Errorf("third waiting request: %v, want ErrQueueFull", err)
		}
		w1.Cancel()
		collect(t, w1)
		if _, err := e.Submit(t.Context(), request("w2", []uint32{1}, 1)); !errors.Is(err, engine.ErrBadRequest) {
			t.Errorf("duplicate id: %v, want ErrBadRequest", err)
		}
		running.Cancel()
		if _, last, _ := collect(t, running); last.Finish != protocol.FinishCancelled {
			t.Errorf("cancelled request finished with %q", last.Finish)
		}
		collect(t, w2)
	})
	t.Run("draining", func(t *testing.T) {
		if err := e.StopAdmission(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Submit(t.Context(), request("x", []uint32{1}, 1)); !errors.Is(err, engine.ErrDraining) {
			t.Errorf("got %v, want ErrDraining", err)
		}
		if err := e.ResumeAdmission(t.Context()); err != nil {
			t.Fatal(err)
		}
		collect(t, submit(t, e, request("y", []uint32{1}, 1)))
	})
}

func TestFailedStep(t *testing.T) {
	broken := errors.New("kernel broke")
	var failing atomic.Bool
	e, _ := start(t, engine.Config{NumBlocks: 16}, mock.Options{BlockSize: 16, Fail: func() error {
		if failing.Load() {
			return broken
		}
		return nil
	}})
	failing.Store(true)
	_, last, _ := collect(t, submit(t, e, request("a", []uint32{1, 2}, 3)))
	if last.Finish != protocol.FinishError || !errors.Is(last.Err, broken) {
		t.Errorf("got %q %v, want error: kernel broke", last.Finish, last.Err)
	}
	failing.Store(false)
	if got, _, _ := collect(t, submit(t, e, request("b", []uint32{1, 2}, 3))); len(got) != 3 {
		t.Errorf("after a failed step: %d tokens, want 3", len(got))
	}
}

func TestSubmitAfterClose(t *testing.T) {
	b := mock.New(mock.Options{})
	if _, err := b.AllocKV(1); err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Config{NumBlocks: 1}, b)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := contextWithCause(t)
	cancel(errors.New("stop"))
	if err := e.Run(ctx); err == nil || err.Error() != "stop" {
		t.Errorf("Run returned %v, want its cause", err)
	}
	if _, err := e.Submit(t.Context(), request("a", []uint32{1}, 1)); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
}
