package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/enginetest"
	"github.com/dynctl/dynctl/internal/engine/mock"
	"github.com/dynctl/dynctl/internal/protocol"
)

// chooser is a backend that chooses the most likely tokens itself, and counts.
type chooser struct {
	engine.Backend
	chosen, logits int
	broken         bool
}

func (c *chooser) Chooses(o *protocol.SamplingOptions) bool { return o.Temperature == 0 }

func (c *chooser) Step(ctx context.Context, batch []engine.BatchSeq) error {
	for i := range batch {
		if batch[i].Logits != nil {
			c.logits++
		}
		if batch[i].Choice != nil {
			batch[i].Logits = make([]float32, c.Info().VocabSize)
		}
	}
	if err := c.Backend.Step(ctx, batch); err != nil {
		return err
	}
	for i := range batch {
		choice := batch[i].Choice
		if choice == nil {
			continue
		}
		c.chosen++
		best := -1
		for id, v := range bent(batch[i].Logits[:c.Info().TokenLimit], choice) {
			if !math.IsInf(float64(v), -1) && (best < 0 || v > batch[i].Logits[best]) {
				best = id
			}
		}
		choice.Token, choice.Broken = uint32(max(best, 0)), c.broken || best < 0
	}
	return nil
}

// bent makes the changes of a choice to logits, and forbids what is not allowed.
func bent(logits []float32, c *engine.Choice) []float32 {
	o := c.Sampling
	once := map[uint32]bool{}
	for _, change := range c.Changes {
		if once[change.Token] {
			panic("two changes for one token")
		}
		once[change.Token] = true
		l := &logits[change.Token]
		*l += change.Bias
		if change.Listed && *l > 0 {
			*l /= o.RepetitionPenalty
		} else if change.Listed {
			*l *= o.RepetitionPenalty
		}
		if change.Count > 0 {
			*l -= o.FrequencyPenalty*float32(change.Count) + o.PresencePenalty
		}
	}
	if c.Allowed != nil {
		mask := c.Allowed()
		for id := range logits {
			if mask != nil && mask[id/64]>>(id%64)&1 == 0 {
				logits[id] = float32(math.Inf(-1))
			}
		}
	}
	return logits
}

// startChooser is start over a chooser.
func startChooser(t *testing.T, c *chooser, cfg engine.Config) *engine.Engine {
	t.Helper()
	c.Backend = mock.New(mock.Options{VocabSize: vocab})
	memory, err := c.AllocKV(cfg.NumBlocks)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = memory.Close() })
	return enginetest.Start(t, c, cfg)
}

// The backend chooses where a request asks for nothing but a draw that it makes; what it is
// asked for changes no token.
func TestChoices(t *testing.T) {
	plain, _ := start(t, engine.Config{NumBlocks: 64}, mock.Options{})
	drafting := engine.Config{NumBlocks: 64, Speculative: cluster.Speculative{Method: cluster.SpeculativeNgram}}
	for name, tc := range map[string]struct {
		cfg            engine.Config
		change         func(r *engine.Request)
		chosen, logits int // of ten tokens
	}{
		"greedy":    {change: func(*engine.Request) {}, chosen: 10},
		"drawn":     {change: func(r *engine.Request) { r.Sampling.Temperature = 0.8 }, logits: 10},
		"a penalty": {change: func(r *engine.Request) { r.Sampling.FrequencyPenalty = 1 }, chosen: 10},
		"all penalties": {change: func(r *engine.Request) {
			r.Sampling.FrequencyPenalty, r.Sampling.PresencePenalty, r.Sampling.RepetitionPenalty = 0.5, -0.25, 2
			r.Sampling.LogitBias = []protocol.TokenBias{{Token: 5, Bias: 3}, {Token: 200, Bias: 1}}
		}, chosen: 10},
		"a bias":       {change: func(r *engine.Request) { r.Sampling.LogitBias = []protocol.TokenBias{{Token: 9, Bias: 100}} }, chosen: 10},
		"bad words":    {change: func(r *engine.Request) { r.Sampling.BadWords = everySecond() }, chosen: 10},
		"allowed ids":  {change: func(r *engine.Request) { r.Sampling.AllowedTokenIDs = []uint32{3, 77, 130} }, chosen: 10},
		"a constraint": {change: func(r *engine.Request) { r.Constraint = &onlyFrom{first: 40, n: 30} }, chosen: 10},
		"all restrictions": {change: func(r *engine.Request) {
			r.Constraint = &onlyFrom{first: 40, n: 30}
			r.Sampling.AllowedTokenIDs = []uint32{41, 42, 43, 44, 45, 46, 47, 48, 49, 60, 61, 62, 99}
			r.Sampling.BadWords = [][]uint32{{41}, {60, 60}, {62, 45}}
			r.Sampling.PresencePenalty = 2
		}, chosen: 10},
		"log probabilities": {change: func(r *engine.Request) { r.Output.Logprobs = new(2) }, logits: 10},
		"a minimum length":  {change: func(r *engine.Request) { r.Stop.MinTokens = 4 }, chosen: 6, logits: 4},
		"drafts":            {cfg: drafting, change: func(*engine.Request) {}, logits: 10},
	} {
		t.Run(name, func(t *testing.T) {
			c := &chooser{}
			tc.cfg.NumBlocks = 64
			e := startChooser(t, c, tc.cfg)
			ask := func(e *engine.Engine) []uint32 {
				r := request(fmt.Sprint("r ", name), []uint32{5, 6, 7, 8, 9, 10, 11}, 10)
				tc.change(&r) // each has a constraint of its own
				tokens, _, _ := collect(t, submit(t, e, r))
				return tokens
			}
			got, want := ask(e), ask(plain)
			if !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
			if c.chosen != tc.chosen || c.logits < tc.logits || tc.logits == 0 && c.logits != 0 {
				t.Errorf("%d tokens chosen and %d rows of logits, want %d and %d", c.chosen, c.logits, tc.chosen, tc.logits)
			}
		})
	}
}

// everySecond forbids every second token, twice, each token after itself, and some that there
// are not.
func everySecond() (words [][]uint32) {
	for t := range uint32(3 * vocab) {
		words = append(words, []uint32{vocab + t}, []uint32{1, vocab + t})
	}
	for t := range uint32(vocab) {
		if t%2 == 0 {
			words = append(words, []uint32{t}, []uint32{t})
		}
		words = append(words, []uint32{t, t})
	}
	return words
}

// onlyFrom is a constraint to some tokens, each of which may come once.
type onlyFrom struct {
	first, n uint32
	had      []uint32
	broken   error
}

func (c *onlyFrom) Mask(dst []uint64) error {
	for t := c.first; t < c.first+c.n; t++ {
		if !slices.Contains(c.had, t) {
			dst[t/64] |= 1 << (t % 64)
		}
	}
	return c.broken
}

func (c *onlyFrom) Accept(t uint32) error {
	c.had = append(c.had, t)
	return nil
}

func (*onlyFrom) Done() bool { return false }

// Restrictions that leave nothing, and a constraint that fails, end a request with the same
// error whoever chooses.
func TestNothingToChoose(t *testing.T) {
	broken := errors.New("no such sentence")
	for name, tc := range map[string]struct {
		change func(r *engine.Request)
		want   error
	}{
		"a constraint used up": {func(r *engine.Request) { r.Constraint = &onlyFrom{first: 8, n: 3} }, engine.ErrNothingAllowed},
		"a contradiction": {func(r *engine.Request) {
			r.Constraint, r.Sampling.AllowedTokenIDs = &onlyFrom{first: 8, n: 3}, []uint32{2, 3}
		}, engine.ErrNothingAllowed},
		"a bad word": {func(r *engine.Request) {
			r.Sampling.AllowedTokenIDs, r.Sampling.BadWords = []uint32{2}, [][]uint32{{2}}
		}, engine.ErrNothingAllowed},
		"a failure": {func(r *engine.Request) { r.Constraint = &onlyFrom{n: 3, broken: broken} }, broken},
	} {
		t.Run(name, func(t *testing.T) {
			plain, _ := start(t, engine.Config{NumBlocks: 64}, mock.Options{})
			c := &chooser{}
			for _, e := range []*engine.Engine{plain, startChooser(t, c, engine.Config{NumBlocks: 64})} {
				r := request("r", []uint32{5, 6, 7}, 10)
				tc.change(&r)
				if _, last, _ := collect(t, submit(t, e, r)); !errors.Is(last.Err, tc.want) || last.Finish != protocol.FinishError {
					t.Errorf("the last output is %+v, want %v", last, tc.want)
				}
			}
			if c.chosen == 0 {
				t.Error("the backend chose nothing")
			}
		})
	}
}

// Where nothing can be chosen the request ends as one whose logits are broken.
func TestBrokenChoice(t *testing.T) {
	e := startChooser(t, &chooser{broken: true}, engine.Config{NumBlocks: 64})
	_, last, _ := collect(t, submit(t, e, request("r", []uint32{1, 2, 3}, 4)))
	if !errors.Is(last.Err, engine.ErrBadLogits) || last.Finish != protocol.FinishError {
		t.Errorf("the last output is %+v", last)
	}
}
