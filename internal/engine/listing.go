package engine

import (
	"context"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// OpenSequences lists the sequences that are not finished, oldest first, at most
// n of them, and how many there are.
func (e *Engine) OpenSequences(ctx context.Context, n int) (open []cluster.OpenSequence, total int, err error) {
	return list(ctx, e, n, func(s *sequence, age time.Duration) cluster.OpenSequence {
		return cluster.OpenSequence{RequestID: s.id, OutTokens: s.output(), AgeMS: age.Milliseconds()}
	})
}

// Sequences tells how the sequences are that are not finished, oldest first, at most n
// of them, and how many there are. It is answered between two steps; RequestID is left to
// the caller, who knows what ids mean.
func (e *Engine) Sequences(ctx context.Context, n int) (all []cluster.Sequence, total int, err error) {
	return list(ctx, e, n, func(s *sequence, age time.Duration) cluster.Sequence {
		return cluster.Sequence{
			ID: s.id, State: s.phase(), PromptTokens: s.prompt, CachedTokens: s.cached, OutTokens: len(s.tokens) - s.prompt,
			ComputedTokens: s.computed, Blocks: len(s.blocks), AgeMS: age.Milliseconds(),
		}
	})
}

// list describes the n oldest sequences on the scheduler's goroutine, and counts all.
func list[T any](ctx context.Context, e *Engine, n int, describe func(*sequence, time.Duration) T) ([]T, int, error) {
	type listing struct {
		rows  []T
		total int
	}
	l, err := ask(ctx, e, func() listing {
		l, now := listing{total: len(e.seqs)}, time.Now()
		for _, s := range e.oldest(n) {
			l.rows = append(l.rows, describe(s, now.Sub(s.arrived)))
		}
		return l
	})
	return l.rows, l.total, err
}

// oldest returns the n oldest sequences. It does not sort all of them: the next step
// waits for it.
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
