// Package undo collects what must be taken back, and takes it back in reverse
// order: the counterpart of defer for set-up that outlives a function.
//
// A [Stack] belongs to one goroutine. Every step gets a limited time and its error
// is logged, so that one stuck step does not keep the others from happening.
package undo

import (
	"context"
	"log/slog"
	"time"
)

// Stack is a list of steps to take back. The zero value is empty and ready.
type Stack struct{ steps []step }

type step struct {
	what string
	f    func(context.Context) error
}

// Push adds a step; what completes the sentence "could not ...".
func (s *Stack) Push(what string, f func(context.Context) error) {
	s.steps = append(s.steps, step{what, f})
}

// Run takes back all steps, last first, each within limit, and empties the stack.
func (s *Stack) Run(limit time.Duration, log *slog.Logger) {
	for i := len(s.steps) - 1; i >= 0; i-- {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		begin := time.Now()
		if err := s.steps[i].f(ctx); err != nil {
			log.Warn("could not "+s.steps[i].what, "error", err)
		}
		if took := time.Since(begin); took > time.Second {
			log.Info("slow step while stopping", "step", s.steps[i].what, "took", took)
		}
		cancel()
	}
	s.steps = nil
}
