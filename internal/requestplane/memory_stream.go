package requestplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
)

// memoryWindow is the number of items that a handler may be ahead of its caller.
const memoryWindow = 64

type memoryFrame struct {
	typ     byte
	payload []byte
}

// memoryStream is both sides of one request of a [Memory].
type memoryStream struct {
	client *MemoryClient
	server *MemoryServer
	frames chan memoryFrame
	// abandoned is closed by the server's side after its last frame.
	abandoned chan struct{}
	// left ends when the caller no longer wants the answer. Its cause becomes the cause
	// of the handler's context.
	left  context.Context
	leave context.CancelCauseFunc
	stop  func()
	asked chan struct{} // closed by Stop
	ask   sync.Once

	mu    sync.Mutex
	final error // what Recv returns from now on
}

func newMemoryStream(ctx context.Context, c *MemoryClient, s *MemoryServer) *memoryStream {
	st := &memoryStream{
		client:    c,
		server:    s,
		frames:    make(chan memoryFrame, memoryWindow),
		abandoned: make(chan struct{}),
		asked:     make(chan struct{}),
	}
	st.left, st.leave = context.WithCancelCause(context.Background())
	st.mu.Lock()
	defer st.mu.Unlock()
	stopCtx := context.AfterFunc(ctx, func() { _ = st.end(context.Cause(ctx), ErrStopped) })
	stopClient := context.AfterFunc(c.ctx, func() { _ = st.end(ErrClientClosed, ErrClientGone) })
	st.stop = func() { stopCtx(); stopClient() }
	return st
}

// offer passes a frame to the caller, or returns the reason why it cannot.
func (st *memoryStream) offer(ctx context.Context, f memoryFrame) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case st.frames <- f:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// put passes the final frame to the caller, even after the caller has left.
func (st *memoryStream) put(typ byte, payload []byte) {
	f := memoryFrame{typ, payload}
	select {
	case st.frames <- f:
		return
	default:
	}
	select {
	case st.frames <- f:
	case <-st.left.Done():
	case <-st.server.ctx.Done():
	}
}

// Recv implements [Stream].
func (st *memoryStream) Recv(ctx context.Context, v any) error {
	if err := st.ended(); err != nil {
		return err
	}
	select {
	case f := <-st.frames:
		return st.take(f, v)
	default:
	}
	select {
	case f := <-st.frames:
		return st.take(f, v)
	case <-st.abandoned:
		select { // it may have arrived after the frames before it
		case f := <-st.frames:
			return st.take(f, v)
		default:
		}
		return st.end(fmt.Errorf("answer from %s: %w", st.server.addr, ErrIncomplete), ErrStopped)
	case <-st.left.Done():
		return st.ended()
	case <-ctx.Done():
		if err := st.ended(); err != nil {
			return err
		}
		return context.Cause(ctx)
	}
}

// Pending implements [Stream].
func (st *memoryStream) Pending() bool { return len(st.frames) > 0 || st.ended() != nil }

func (st *memoryStream) take(f memoryFrame, v any) error {
	switch f.typ {
	case frameItem:
		if err := decode(f.payload, v); err != nil {
			return fmt.Errorf("answer from %s: %w", st.server.addr, err)
		}
		return nil
	case frameEnd:
		return st.end(io.EOF, nil)
	case frameError:
		return st.end(decodeError(f.payload), nil)
	}
	return st.end(errors.Join(ErrIncomplete, errFrame), ErrStopped)
}

func (st *memoryStream) ended() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.final
}

// end makes err the final result, unless there is one already, and cancels the handler.
// It returns the final result, for Recv.
func (st *memoryStream) end(err, why error) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.final == nil {
		st.final = err
		st.stop()
		st.leave(why)
	}
	return st.final
}

// Stop implements [Stream].
func (st *memoryStream) Stop() { st.ask.Do(func() { close(st.asked) }) }

// Close implements [Stream].
func (st *memoryStream) Close() { _ = st.end(ErrStreamClosed, ErrStopped) }
