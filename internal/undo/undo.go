// Package undo collects clean-up steps and runs them in reverse order. It is the
// counterpart of defer for set-up that outlives a function.
//
// A [Stack] belongs to one goroutine. Every step has a time limit, and its error is
// logged. Run waits even for a step that exceeds its limit, and logs that. Later steps,
// such as freeing memory, must not happen while it still runs.
package undo

import (
	"context"
	"log/slog"
	"time"
)

// Stack is a list of clean-up steps. The zero value is empty and ready.
type Stack struct{ steps []step }

type step struct {
	what string
	f    func(context.Context) error
}

// Push adds a step. what names it in the log, as an imperative: "close the store".
func (s *Stack) Push(what string, f func(context.Context) error) {
	s.steps = append(s.steps, step{what, f})
}

// slow is the duration from which the log mentions a step.
const slow = time.Second

// Run runs all steps, last first, and empties the stack. The context of each step ends
// after limit.
func (s *Stack) Run(limit time.Duration, log *slog.Logger) {
	for len(s.steps) > 0 {
		last := s.steps[len(s.steps)-1]
		s.steps = s.steps[:len(s.steps)-1]
		last.run(limit, log)
	}
}

func (s step) run(limit time.Duration, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	defer time.AfterFunc(limit+slow, func() { log.Error("stopping waits for a step", "step", s.what, "limit", limit) }).Stop()
	begin := time.Now()
	if err := s.f(ctx); err != nil {
		log.Warn("step failed while stopping", "step", s.what, "error", err)
	}
	if took := time.Since(begin); took > slow {
		log.Info("slow step while stopping", "step", s.what, "took", took)
	}
}
