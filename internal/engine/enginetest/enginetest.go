// Package enginetest runs engines for the tests of backends.
//
// Start with [Start]; [Read] reads what a request gives.
package enginetest

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/engine"
)

// patience bounds all waits, to end a test that hangs.
const patience = 2 * time.Minute

// Start runs a scheduler over a backend, whose pool has cfg.NumBlocks blocks. When the test
// ends it is stopped, and no block may be left in use, before and after.
func Start(t testing.TB, b engine.Backend, cfg engine.Config) *engine.Engine {
	t.Helper()
	e, err := engine.New(cfg, b)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	t.Cleanup(func() {
		check, stop := context.WithTimeout(context.Background(), patience)
		defer stop()
		if err := e.Check(check, true); err != nil && !errors.Is(err, engine.ErrClosed) {
			t.Errorf("after the test: %v", err)
		}
		cancel(errors.New("test over"))
		select {
		case <-ended:
		case <-check.Done():
			t.Error("the engine did not stop")
		}
		if err := e.Check(check, true); err != nil {
			t.Errorf("after the stop: %v", err)
		}
	})
	return e
}

// Submit hands a request in.
func Submit(t testing.TB, e *engine.Engine, r engine.Request) *engine.Stream {
	t.Helper()
	s, err := e.Submit(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Read reads a stream to its end; an error in it ends the test.
func Read(t testing.TB, s *engine.Stream) (tokens []uint32) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		o, err := s.Next(ctx)
		if errors.Is(err, io.EOF) {
			return tokens
		}
		if err = errors.Join(err, o.Err); err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, o.Tokens...)
	}
}
