package engine_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/mock"
	"github.com/dynctl/dynctl/internal/protocol"
)

// everything is a set of options that all depend on what came before.
func everything(seed uint64) protocol.SamplingOptions {
	return protocol.SamplingOptions{
		Temperature: 0.9, TopK: 80, TopP: 0.95, MinP: 0.01, Seed: seed,
		RepetitionPenalty: 1.3, FrequencyPenalty: 0.7, PresencePenalty: -0.4,
		LogitBias: []protocol.TokenBias{{Token: 5, Bias: 3}, {Token: 6, Bias: -100}}, BadWords: [][]uint32{{7}, {5, 5}},
	}
}

// counter is a constraint whose state is what it has accepted: the next token must
// be in the next class modulo 5.
type counter struct {
	taken []uint32
	end   int // tokens after which only the last id may come
	// broken ones fail after three tokens.
	broken bool
}

var errBroken = errors.New("the constraint is broken")

const lastID = vocab - 1

func (c *counter) Mask(dst []uint64) error {
	switch {
	case c.broken && len(c.taken) == 3:
		return errBroken
	case len(c.taken) > c.end:
		return nil
	case len(c.taken) == c.end:
		dst[lastID/64] |= 1 << (lastID % 64)
		return nil
	}
	for id := range lastID {
		if id%5 == len(c.taken)%5 {
			dst[id/64] |= 1 << (id % 64)
		}
	}
	return nil
}

func (c *counter) Accept(id uint32) error {
	if len(c.taken) < c.end && int(id)%5 != len(c.taken)%5 {
		return errors.New("wrong class")
	}
	c.taken = append(c.taken, id)
	return nil
}

func (c *counter) Done() bool { return len(c.taken) > c.end }

// whatever happens to a sequence, its output is what it would have been: penalties,
// draws, bad words and constraints depend on the tokens alone.
func TestOptionsSurviveMigrationAndPreemption(t *testing.T) {
	r := seeded(t)
	p := prompt(r, 40)
	build := func(id string, tokens []uint32, generated int) engine.Request {
		q := request(id, tokens, 60-generated)
		q.Generated, q.Sampling = generated, everything(11)
		q.Stop.MinTokens = 50 - generated
		q.Stop.StopTokenIDs = []uint32{1, 2, 3}
		q.Constraint = &counter{end: 1000}
		n := 3
		q.Output.Logprobs = &n
		return q
	}
	roomy, _ := start(t, engine.Config{NumBlocks: 64}, mock.Options{BlockSize: 16})
	whole, logprobs := collectLogprobs(t, submit(t, roomy, build("whole", p, 0)))
	if len(whole) < 50 {
		t.Fatalf("only %d tokens: the minimum does not hold", len(whole))
	}
	for n := 1; n < len(whole); n += 7 {
		rest, lp := collectLogprobs(t, submit(t, roomy, build(fmt.Sprint("rest", n), append(slices.Clone(p), whole[:n]...), n)))
		if !equal(rest, whole[n:]) || !slices.Equal(lp.Tokens, logprobs.Tokens[n:]) {
			t.Errorf("after %d tokens: %v %v, want %v %v", n, rest, lp.Tokens, whole[n:], logprobs.Tokens[n:])
		}
	}
	t.Run("preempted", func(t *testing.T) {
		e, _ := start(t, engine.Config{NumBlocks: 14, MaxSeqs: 6},
			mock.Options{BlockSize: 16, StepTime: func(int, int) time.Duration { return 200 * time.Microsecond }})
		for round := 0; e.Stats().PreemptedTotal == 0; round++ { // they need company at the right time
			if round == 20 {
				t.Fatal("nothing was preempted, so the case tests nothing")
			}
			var streams []*engine.Stream
			for i := range 6 {
				streams = append(streams, submit(t, e, build(fmt.Sprint("r", round, i), p, 0)))
			}
			for i, s := range streams {
				if got, lp := collectLogprobs(t, s); !equal(got, whole) || !slices.Equal(lp.TopIDs, logprobs.TopIDs) {
					t.Errorf("request %d: %v, want %v", i, got, whole)
				}
			}
		}
	})
}

func collectLogprobs(t *testing.T, s *engine.Stream) ([]uint32, *protocol.Logprobs) {
	t.Helper()
	var tokens []uint32
	all := &protocol.Logprobs{}
	for {
		o, err := s.Next(t.Context())
		if err != nil {
			return tokens, all
		}
		if o.Err != nil {
			t.Fatalf("output: %v", o.Err)
		}
		tokens = append(tokens, o.Tokens...)
		if len(o.Tokens) > 0 {
			if o.Logprobs == nil || !o.Logprobs.Valid(len(o.Tokens)) {
				t.Fatalf("%d tokens with %+v", len(o.Tokens), o.Logprobs)
			}
			all.Width = o.Logprobs.Width
			all.Append(o.Logprobs)
		}
	}
}

func TestConstraint(t *testing.T) {
	e, _ := start(t, engine.Config{NumBlocks: 64}, mock.Options{BlockSize: 16})
	p := prompt(seeded(t), 20)
	for _, tc := range []struct {
		name    string
		end     int
		stop    []uint32
		visible []uint32
		want    int // tokens
		finish  protocol.FinishReason
	}{
		{"ends with a hidden token", 8, []uint32{lastID}, nil, 8, protocol.FinishStop},
		{"ends with a visible token", 8, nil, []uint32{lastID}, 9, protocol.FinishStop},
		{"is done, although nothing stops", 8, nil, nil, 9, protocol.FinishStop},
		{"is longer than the request", 100, []uint32{lastID}, nil, 30, protocol.FinishLength},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &counter{end: tc.end}
			q := request(tc.name, p, 30)
			q.Constraint, q.Sampling = c, protocol.SamplingOptions{Temperature: 1, Seed: 4}
			q.Stop.StopTokenIDs, q.Stop.StopTokenIDsVisible, q.Stop.MinTokens = tc.stop, tc.visible, 20
			got, last, _ := collect(t, submit(t, e, q))
			if len(got) != tc.want || last.Finish != tc.finish {
				t.Errorf("%v, %q %v; want %d tokens and %q", got, last.Finish, last.Err, tc.want, tc.finish)
			}
			for i, id := range got[:min(len(got), tc.end)] {
				if int(id)%5 != i%5 {
					t.Errorf("token %d is %d", i, id)
				}
			}
		})
	}
	t.Run("earlier output outside of it", func(t *testing.T) {
		q := request("bad", append(slices.Clone(p), 3), 5)
		q.Generated, q.Constraint = 1, &counter{end: 8}
		if _, err := e.Submit(t.Context(), q); !errors.Is(err, engine.ErrBadRequest) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("broken", func(t *testing.T) {
		q := request("broken", p, 9)
		q.Constraint = &counter{end: 8, broken: true}
		if got, last, _ := collect(t, submit(t, e, q)); len(got) != 3 || !errors.Is(last.Err, errBroken) {
			t.Errorf("got %v, %q %v", got, last.Finish, last.Err)
		}
	})
	t.Run("nothing allowed", func(t *testing.T) {
		q := request("none", p, 5)
		q.Constraint, q.Sampling.BadWords = &counter{}, [][]uint32{{lastID}}
		if _, last, _ := collect(t, submit(t, e, q)); !errors.Is(last.Err, engine.ErrNothingAllowed) {
			t.Errorf("got %q %v", last.Finish, last.Err)
		}
	})
}

func TestVisibleStopToken(t *testing.T) {
	e, _ := start(t, engine.Config{NumBlocks: 64}, mock.Options{BlockSize: 16})
	p := prompt(seeded(t), 20)
	free := mock.Continue(p, 30, vocab)
	at := slices.Index(free, free[6])
	q := request("a", p, 30)
	q.Stop.StopTokenIDs, q.Stop.StopTokenIDsVisible = []uint32{free[at]}, []uint32{free[at]}
	if got, last, _ := collect(t, submit(t, e, q)); !equal(got, free[:at+1]) || last.Finish != protocol.FinishStop {
		t.Errorf("got %v %q, want %v", got, last.Finish, free[:at+1])
	}
}

func TestRefusedOptions(t *testing.T) {
	e, _ := start(t, engine.Config{NumBlocks: 4}, mock.Options{BlockSize: 16})
	number := func(n int) *int { return &n }
	for name, change := range map[string]func(*engine.Request){
		"bias of no token":       func(q *engine.Request) { q.Sampling.LogitBias = []protocol.TokenBias{{Token: vocab}} },
		"allowed id of none":     func(q *engine.Request) { q.Sampling.AllowedTokenIDs = []uint32{vocab} },
		"empty bad word":         func(q *engine.Request) { q.Sampling.BadWords = [][]uint32{{}} },
		"too many logprobs":      func(q *engine.Request) { q.Output.Logprobs = number(21) },
		"negative logprobs":      func(q *engine.Request) { q.Output.PromptLogprobs = number(-1) },
		"nothing to do":          func(q *engine.Request) { q.Stop.MaxTokens = 0 },
		"fewer tokens than none": func(q *engine.Request) { q.Stop.MaxTokens, q.Output.PromptLogprobs = -1, number(1) },
	} {
		q := request(name, []uint32{1, 2}, 3)
		change(&q)
		if _, err := e.Submit(t.Context(), q); !errors.Is(err, engine.ErrBadRequest) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
