package served

import (
	"context"
	"errors"
	"fmt"

	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// sleeping is what a Server knows of the sleep of its server. The Server's mu guards it.
type sleeping struct {
	asleep bool
	moving bool // an order is under way: the server may be silent meanwhile
	// awake ends when the server is found asleep; it is replaced when the server is awake again.
	awake context.Context
	doze  context.CancelCauseFunc
}

// errAsleep ends the requests at a server that somebody else has put to sleep.
var errAsleep = &requestplane.RemoteError{Kind: requestplane.KindUnavailable, Message: "the server sleeps"}

// Turned tells when the server fell asleep or woke without an order of this worker.
func (s *Server) Turned() <-chan struct{} { return s.turned }

// CanSleep returns why the server cannot sleep at a level, nil if nothing is known against it.
func (s *Server) CanSleep(ctx context.Context, level int) error {
	e, ok := s.Engine.(external.Sleeper)
	if !ok {
		return fmt.Errorf("servers of %s do not sleep", s.Backend)
	}
	return s.ask(ctx, func(ctx context.Context) error { return e.CanSleep(ctx, level) })
}

// Asleep asks whether the server sleeps.
func (s *Server) Asleep(ctx context.Context) (asleep bool, err error) {
	e, ok := s.Engine.(external.Sleeper)
	if !ok {
		return false, nil
	}
	err = s.ask(ctx, func(ctx context.Context) error {
		asleep, err = e.Asleep(ctx)
		return err
	})
	if err == nil {
		s.found(asleep)
	}
	return asleep, err
}

// Sleep puts the server to sleep. It must be awake and run nothing.
func (s *Server) Sleep(ctx context.Context, level int) error {
	return s.order(ctx, true, func(ctx context.Context, e external.Sleeper) error {
		if err := e.Sleep(ctx, level); err != nil {
			return fmt.Errorf("put the server to sleep: %w", err)
		}
		return nil
	})
}

// Wake wakes the server, which sleeps at a level, and returns when it takes requests.
func (s *Server) Wake(ctx context.Context, level int) error {
	return s.order(ctx, false, func(ctx context.Context, e external.Sleeper) error {
		if err := e.Wake(ctx, level); err != nil {
			return fmt.Errorf("wake the server: %w", err)
		}
		if err := s.ask(ctx, e.(external.Engine).Health); err != nil {
			return fmt.Errorf("the server woke and is not well: %w", err)
		}
		return nil
	})
}

// order carries out an order to sleep or to wake.
func (s *Server) order(ctx context.Context, asleep bool, give func(context.Context, external.Sleeper) error) error {
	e, ok := s.Engine.(external.Sleeper)
	if !ok {
		return fmt.Errorf("servers of %s do not sleep", s.Backend)
	}
	ctx, cancel := context.WithTimeout(ctx, s.Waits.Sleep)
	defer cancel()
	s.moves(true)
	defer s.moves(false)
	if err := give(ctx, e); err != nil {
		return err
	}
	s.found(asleep)
	return nil
}

func (s *Server) moves(v bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sleep.moving = v
}

// found takes in whether the server sleeps, and reports whether that is news. A server that fell
// asleep has lost its KV cache, and requests at it wait for nothing.
func (s *Server) found(asleep bool) bool {
	s.mu.Lock()
	z := &s.sleep
	news := z.asleep != asleep
	z.asleep = asleep
	switch {
	case news && asleep:
		z.doze(errAsleep)
	case news:
		z.awake, z.doze = context.WithCancelCause(context.Background())
	}
	s.mu.Unlock()
	if news && asleep && s.Events != nil {
		s.Events.Forget()
	}
	return news
}

// notice looks whether the server sleeps, unless an order is under way.
func (s *Server) notice(ctx context.Context) error {
	s.mu.Lock()
	before, moving := s.sleep.asleep, s.sleep.moving
	s.mu.Unlock()
	if moving {
		return nil
	}
	now, err := s.Asleep(ctx)
	if err != nil || now == before {
		return err
	}
	s.Log.Warn("somebody else has put the server to sleep, or has woken it", "asleep", now)
	select {
	case s.turned <- struct{}{}:
	default: // it is told already
	}
	return nil
}

// well asks whether the server is well, and whether it sleeps. While it falls asleep or wakes it
// may be silent.
func (s *Server) well(ctx context.Context) error {
	err := s.ask(ctx, s.Engine.Health)
	if err == nil {
		err = s.notice(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sleep.moving {
		return nil
	}
	return err
}

// during returns the context of a request, which ends with Run, too, and when the server falls
// asleep.
func (s *Server) during(ctx context.Context) (context.Context, func()) {
	s.mu.Lock()
	awake := s.sleep.awake
	s.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	var stops []func() bool
	for _, end := range []context.Context{s.over, awake} {
		stops = append(stops, context.AfterFunc(end, func() { cancel(context.Cause(end)) }))
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel(nil)
	}
}

// failed returns what a frontend is told of the error of a request whose context is that of
// during: another worker may do better if this one has ended or sleeps. An adapter that failed may
// be gone.
func (s *Server) failed(ctx context.Context, r *external.Request, err error) error {
	if err != nil && r.Adapter != "" {
		select {
		case s.doubt <- struct{}{}:
		default:
		}
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), errAsleep):
		return errAsleep
	case s.over.Err() == nil:
		return err
	}
	return &requestplane.RemoteError{Kind: requestplane.KindUnavailable, Message: "the worker ends: " + context.Cause(s.over).Error()}
}
