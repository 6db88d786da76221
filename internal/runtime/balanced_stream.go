package runtime

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// balancedStream is a call of a balancer. Until it has received something, it can begin
// anew at another instance. It belongs to one goroutine, except Close.
type balancedStream struct {
	b    *Balancer
	only bool // never at another instance

	ctx     context.Context // of the whole exchange, which may begin anew
	id      string
	headers map[string]string
	body    any
	tried   map[cluster.InstanceID]bool
	begun   bool // an item has arrived

	mu     sync.Mutex
	at     cluster.InstanceID // of inner
	inner  requestplane.Stream
	over   bool // the call is counted no more
	closed bool

	stopped bool // Stop was called
}

// next calls an instance that was not tried. why is the error of the last one, which is
// returned when no instance is left.
func (s *balancedStream) next(why error) error {
	for {
		inst, ok := s.b.choose(s.tried)
		if !ok {
			err := fmt.Errorf("call %s: %w", s.b.client.subject, ErrNoInstance)
			if why != nil {
				err = fmt.Errorf("%w left to try: %w", err, why)
			}
			return err
		}
		if s.tried == nil {
			s.tried = map[cluster.InstanceID]bool{}
		}
		s.tried[inst.InstanceID] = true
		inner, err := s.b.client.Call(s.ctx, inst, s.id, s.headers, s.body)
		if err == nil {
			return s.use(inst.InstanceID, inner)
		}
		s.b.end(inst.InstanceID)
		if !requestplane.NotStarted(err) && !errors.Is(err, ErrNoTransport) {
			return err
		}
		why = err
	}
}

// use goes on with a stream, unless Close was called meanwhile.
func (s *balancedStream) use(at cluster.InstanceID, inner requestplane.Stream) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		inner.Close()
		s.b.end(at)
		return requestplane.ErrStreamClosed
	}
	s.at, s.inner, s.over = at, inner, false
	if s.stopped {
		inner.Stop()
	}
	return nil
}

// finish counts the call no more.
func (s *balancedStream) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.over = true
		s.b.end(s.at)
	}
}

func (s *balancedStream) current() requestplane.Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inner
}

// Recv implements [requestplane.Stream].
func (s *balancedStream) Recv(ctx context.Context, v any) error {
	for {
		err := s.current().Recv(ctx, v)
		switch {
		case err == nil:
			s.begun = true
			return nil
		case ctx.Err() != nil && s.ctxAlive():
			return err // a later Recv goes on
		}
		s.finish()
		if s.only || s.begun || !requestplane.NotStarted(err) {
			return err
		}
		if again := s.next(err); again != nil {
			s.only = true // the error repeats
			return again
		}
	}
}

// ctxAlive reports whether the exchange itself, as opposed to one wait for it, goes on.
func (s *balancedStream) ctxAlive() bool { return s.ctx.Err() == nil }

// Pending implements [requestplane.Stream].
func (s *balancedStream) Pending() bool { return s.current().Pending() }

// Stop implements [requestplane.Stream]. A request that goes to another instance afterwards is
// stopped there.
func (s *balancedStream) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	s.inner.Stop()
}

// Close implements [requestplane.Stream].
func (s *balancedStream) Close() {
	s.mu.Lock()
	s.closed = true
	s.inner.Close()
	s.mu.Unlock()
	s.finish()
}
