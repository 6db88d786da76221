package engine

import (
	"context"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// OpenSequences returns the n oldest unfinished sequences, oldest first, and the number
// of all unfinished ones.
func (e *Engine) OpenSequences(ctx context.Context, n int) (open []cluster.OpenSequence, total int, err error) {
	return list(ctx, e, n, func(s *sequence, age time.Duration) cluster.OpenSequence {
		return cluster.OpenSequence{RequestID: s.id, OutTokens: s.output(), AgeMS: age.Milliseconds()}
	})
}

// Sequences returns the progress of the n oldest unfinished sequences, oldest first, and
// the number of all unfinished ones. It waits for the current step. The caller fills in
// RequestID, because the engine does not interpret ids.
func (e *Engine) Sequences(ctx context.Context, n int) (all []cluster.Sequence, total int, err error) {
	return list(ctx, e, n, func(s *sequence, age time.Duration) cluster.Sequence {
		return cluster.Sequence{
			ID: s.id, State: s.phase(), PromptTokens: s.prompt, CachedTokens: s.cached, OutTokens: len(s.tokens) - s.prompt,
			ComputedTokens: s.computed, Blocks: len(s.blocks), AgeMS: age.Milliseconds(),
		}
	})
}

// list describes the n oldest sequences on the scheduler's goroutine and counts all.
func list[T any](ctx context.Context, e *Engine, n int, describe func(*sequence, time.Duration) T) ([]T, int, error) {
	type listing struct {
		rows  []T
		total int
	}
	l, err := ask(ctx, e, func() listing {
		l, now := listing{total: len(e.seqs)}, e.cfg.Now()
		for _, s := range e.oldest(n) {
			l.rows = append(l.rows, describe(s, now.Sub(s.arrived)))
		}
		return l
	})
	return l.rows, l.total, err
}

// oldest returns the n oldest sequences. It avoids sorting all of them, because the next
// step waits for it.
func (e *Engine) oldest(n int) []*sequence {
	if n <= 0 {
		return nil
	}
	var out []*sequence
	for _, s := range e.seqs {
		if len(out) == n && !s.older(out[n-1]) {
			continue
		}
		at, _ := slices.BinarySearchFunc(out, s, func(o, s *sequence) int {
			if o.older(s) {
				return -1
			}
			return 1
		})
		out = slices.Insert(out[:min(len(out), n-1)], at, s)
	}
	return out
}
