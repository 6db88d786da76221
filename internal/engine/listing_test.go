package engine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/mock"
)

// sequenceOf waits until a sequence is in a state.
func sequenceOf(t *testing.T, e *engine.Engine, id string, want cluster.SequenceState) cluster.Sequence {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		all, _, err := e.Sequences(ctx, 100)
		if err != nil {
			t.Fatalf("%s was never %s: %v", id, want, err)
		}
		for _, s := range all {
			if s.ID == id && s.State == want {
				return s
			}
		}
	}
}

// TestSequences sees sequences in every state, with what they have by then.
func TestSequences(t *testing.T) {
	const block = 16
	e, _ := start(t, engine.Config{NumBlocks: 200, MaxSeqs: 2, MaxBatchTokens: block}, mock.Options{
		BlockSize: block, MaxContext: 4096, StepTime: func(int, int) time.Duration { return time.Millisecond },
	})
	r := seeded(t)
	long := prompt(r, 600)

	first := submit(t, e, request("first", long, 3000))
	s := sequenceOf(t, e, "first", cluster.SequencePrefill)
	if s.PromptTokens != 600 || s.OutTokens != 0 || s.CachedTokens != 0 || s.ComputedTokens >= 600 || s.Blocks*block < 600 {
		t.Errorf("while its prompt is computed: %+v", s)
	}
	s = sequenceOf(t, e, "first", cluster.SequenceDecode)
	if s.ComputedTokens < 599 || s.Blocks*block < s.ComputedTokens {
		t.Errorf("while it decodes: %+v", s)
	}

	// Its prompt begins with blocks that are cached by now, and the rest is left to others.
	given := make(chan *engine.Reservation, 1)
	remote := request("remote", append(append([]uint32{}, long[:4*block]...), prompt(r, 40)...), 5)
	remote.Decide = always
	remote.Remote = func(r *engine.Reservation) { given <- r; <-r.Context().Done(); r.Release(context.Canceled) }
	second := submit(t, e, remote)
	s = sequenceOf(t, e, "remote", cluster.SequenceRemote)
	if s.CachedTokens != 4*block || s.PromptTokens != 4*block+40 || s.Blocks != 7 {
		t.Errorf("while others compute it: %+v", s)
	}
	<-given

	third := submit(t, e, request("third", prompt(r, 10), 5)) // no place is left
	s = sequenceOf(t, e, "third", cluster.SequenceWaiting)
	if s.Blocks != 0 || s.ComputedTokens != 0 || s.PromptTokens != 10 {
		t.Errorf("while it waits: %+v", s)
	}

	all, total, err := e.Sequences(t.Context(), 2)
	if err != nil || total != 3 || len(all) != 2 || all[0].ID != "first" || all[1].ID != "remote" || all[0].AgeMS < all[1].AgeMS {
		t.Errorf("the oldest two of %d: %+v, %v", total, all, err)
	}
	if all, total, err = e.Sequences(t.Context(), 0); err != nil || total != 3 || len(all) != 0 {
		t.Errorf("none of %d: %+v, %v", total, all, err)
	}
	for _, s := range []*engine.Stream{first, second} {
		s.Cancel()
	}
	if tokens, _, _ := collect(t, third); len(tokens) != 5 {
		t.Errorf("the one that waited has %d tokens", len(tokens))
	}
}

// Listing goes on beside sequences that come, grow, are preempted and leave.
func TestSequencesUnderLoad(t *testing.T) {
	const block, most = 16, 5
	e, _ := start(t, engine.Config{NumBlocks: 24, MaxSeqs: 8, MaxBatchTokens: 64}, mock.Options{BlockSize: block})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var watchers, clients sync.WaitGroup
	for range 2 {
		watchers.Go(func() {
			for ctx.Err() == nil {
				all, total, err := e.Sequences(ctx, most)
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				seen := map[string]bool{}
				for i, s := range all {
					if seen[s.ID] || s.Blocks*block < s.ComputedTokens || s.ComputedTokens > s.PromptTokens+s.OutTokens || i > 0 && s.AgeMS > all[i-1].AgeMS {
						t.Errorf("sequence %d of %+v", i, all)
						return
					}
					seen[s.ID] = true
				}
				if len(all) != min(total, most) {
					t.Errorf("%d of %d are listed", len(all), total)
					return
				}
			}
		})
	}
	for c := range 6 {
		clients.Go(func() {
			r := seeded(t)
			for i := range 30 {
				s, err := e.Submit(t.Context(), request(fmt.Sprintf("%d-%d", c, i), prompt(r, 1+r.IntN(80)), 1+r.IntN(60)))
				if err != nil {
					t.Error(err)
					return
				}
				if i%5 == 4 {
					s.Cancel()
					continue
				}
				collect(t, s)
			}
		})
	}
	clients.Wait()
	cancel()
	watchers.Wait()
}
