package engine_test

import (
	"context"
	"errors"
	"fmt"
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
		best := 0
		for id, v := range batch[i].Logits[:c.Info().TokenLimit] {
			if v > batch[i].Logits[best] {
				best = id
			}
		}
		choice.Token, choice.Broken = uint32(best), c.broken
	}
	return nil
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
		"greedy":            {change: func(*engine.Request) {}, chosen: 10},
		"drawn":             {change: func(r *engine.Request) { r.Sampling.Temperature = 0.8 }, logits: 10},
		"a penalty":         {change: func(r *engine.Request) { r.Sampling.FrequencyPenalty = 1 }, logits: 10},
		"log probabilities": {change: func(r *engine.Request) { r.Output.Logprobs = new(2) }, logits: 10},
		"a minimum length":  {change: func(r *engine.Request) { r.Stop.MinTokens = 4 }, chosen: 6, logits: 4},
		"drafts":            {cfg: drafting, change: func(*engine.Request) {}, logits: 10},
	} {
		t.Run(name, func(t *testing.T) {
			c := &chooser{}
			tc.cfg.NumBlocks = 64
			e := startChooser(t, c, tc.cfg)
			r := request(fmt.Sprint("r ", name), []uint32{5, 6, 7, 8, 9, 10, 11}, 10)
			tc.change(&r)
			got, _, _ := collect(t, submit(t, e, r))
			want, _, _ := collect(t, submit(t, plain, r))
			if !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
			if c.chosen != tc.chosen || c.logits < tc.logits || tc.logits == 0 && c.logits != 0 {
				t.Errorf("%d tokens chosen and %d rows of logits, want %d and %d", c.chosen, c.logits, tc.chosen, tc.logits)
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
