package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/mock"
	"github.com/dynctl/dynctl/internal/protocol"
)

// scored asks for the log probabilities of the prompt beside n tokens.
func scored(id string, p []uint32, n, width int) engine.Request {
	q := request(id, p, n)
	q.Output.PromptLogprobs = &width
	return q
}

// stepwise finds the log probabilities of a prompt token by token: it asks what
// follows each beginning and allows nothing but the token that does.
func stepwise(t *testing.T, e *engine.Engine, p []uint32, width int) *protocol.Logprobs {
	t.Helper()
	all := &protocol.Logprobs{Width: width}
	for i := 1; i < len(p); i++ {
		q := request(fmt.Sprint("step", i), p[:i], 1)
		q.Output.Logprobs, q.Sampling.AllowedTokenIDs = &width, p[i:i+1]
		_, lp := collectLogprobs(t, submit(t, e, q))
		all.Append(lp)
	}
	return all
}

func same(a, b *protocol.Logprobs) bool {
	return a != nil && slices.Equal(a.Tokens, b.Tokens) && a.Width == b.Width && slices.Equal(a.TopIDs, b.TopIDs) && slices.Equal(a.TopValues, b.TopValues)
}

// promptOf reads a stream to its end and returns the log probabilities of its
// prompt, which must come once, with the first output.
func promptOf(t *testing.T, s *engine.Stream) (*protocol.Logprobs, []uint32, *engine.FirstToken) {
	t.Helper()
	var found *protocol.Logprobs
	var first *engine.FirstToken
	var tokens []uint32
	for {
		o, err := s.Next(t.Context())
		if err != nil {
			return found, tokens, first
		}
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		if (o.First != nil) != (o.PromptLogprobs != nil) {
			t.Error("log probabilities of the prompt and first token do not come together")
		}
		if o.First != nil {
			found, first = o.PromptLogprobs, o.First
		}
		tokens = append(tokens, o.Tokens...)
	}
}

func TestPromptLogprobs(t *testing.T) {
	r := seeded(t)
	e, _ := start(t, engine.Config{NumBlocks: 128, MaxBatchTokens: 24}, mock.Options{BlockSize: 16})
	for _, n := range []int{1, 2, 3, 16, 17, 18, 40, 100} {
		for _, width := range []int{0, 3} {
			p := prompt(r, n)
			want := stepwise(t, e, p, width)
			for i, tokens := range []int{0, 1, 5} { // the second and third find the prompt in the cache
				got, out, first := promptOf(t, submit(t, e, scored(fmt.Sprint(n, width, i), p, tokens, width)))
				if !same(got, want) || !equal(out, mock.Continue(p, tokens, vocab)) || first.Cached != 0 {
					t.Errorf("prompt of %d, %d tokens: %+v and %v; want %+v", n, tokens, got, out, want)
				}
			}
		}
	}
}

// Chunks, other sequences, preemption, and a remote prefill that is not asked for
// change nothing.
func TestPromptLogprobsInCompany(t *testing.T) {
	r := seeded(t)
	e, _ := start(t, engine.Config{NumBlocks: 512}, mock.Options{BlockSize: 16})
	p := prompt(r, 70)
	want := stepwise(t, e, p, 2)
	for _, cfg := range []engine.Config{
		{NumBlocks: 512, MaxBatchTokens: 5, MaxSeqs: 8}, {NumBlocks: 512, MaxSeqs: 8}, {NumBlocks: 30, MaxSeqs: 8},
	} {
		e, _ := start(t, cfg, mock.Options{BlockSize: 16, StepTime: func(int, int) time.Duration { return 100 * time.Microsecond }})
		for round := 0; round == 0 || cfg.NumBlocks == 30 && e.Stats().PreemptedTotal == 0; round++ {
			if round == 20 {
				t.Fatal("nothing was preempted, so the case tests nothing")
			}
			var streams []*engine.Stream
			for i := range 5 {
				q := scored(fmt.Sprint("s", round, i), p, 60, 2)
				q.Decide = func(int, int) engine.Decision { return engine.Decision{Remote: true} }
				q.Remote = func(r *engine.Reservation) { t.Error("asked for a remote prefill"); r.Fallback("") }
				streams = append(streams, submit(t, e, q), submit(t, e, request(fmt.Sprint("r", round, i), prompt(r, 20+r.IntN(30)), 40)))
			}
			for i, s := range streams {
				if i%2 == 1 {
					collect(t, s)
				} else if got, out, _ := promptOf(t, s); !same(got, want) || !equal(out, mock.Continue(p, 60, vocab)) {
					t.Errorf("%+v: request %d: %+v, want %+v", cfg, i, got, want)
				}
			}
		}
	}
}

// Earlier output is not part of the prompt.
func TestPromptLogprobsAfterMigration(t *testing.T) {
	e, _ := start(t, engine.Config{NumBlocks: 64}, mock.Options{BlockSize: 16})
	p := prompt(seeded(t), 30)
	want := stepwise(t, e, p[:20], 1)
	q := scored("a", p, 3, 1)
	q.Generated = 10
	if got, out, _ := promptOf(t, submit(t, e, q)); !same(got, want) || !equal(out, mock.Continue(p, 3, vocab)) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// A prompt that fills the context can be scored, though nothing can follow it.
func TestPromptLogprobsOfFullContext(t *testing.T) {
	e, _ := start(t, engine.Config{NumBlocks: 4}, mock.Options{BlockSize: 16})
	p := prompt(seeded(t), 64)
	if got, out, _ := promptOf(t, submit(t, e, scored("a", p, 0, 1))); got == nil || !got.Valid(63) || len(out) > 0 {
		t.Errorf("got %+v and %v", got, out)
	}
}
