// Package undo collects what must be taken back, and takes it back in reverse
// order: the counterpart of defer for set-up that outlives a function.
//
// A [Stack] belongs to one goroutine. Every step is told how long it may take, and
// its error is logged. A step that does not heed its limit is waited for all the
// same, and the log says so: what comes after it, freeing memory say, may not happen
// while it still runs.
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

// Push adds a step; what names it in the log, as an imperative: "close the store".
func (s *Stack) Push(what string, f func(context.Context) error) {
	s.steps = append(s.steps, step{what, f})
}

// slow is how long a step may take before the log mentions it.
const slow = time.Second

// Run takes back all steps, last first, each with limit as the deadline of its
// context, and empties the stack.
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
