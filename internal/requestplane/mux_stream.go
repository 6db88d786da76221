package requestplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/hashicorp/yamux"
)

// muxStream is the caller's side of one request. Recv is for one goroutine. The mutex
// guards the fields that Close and the end of the call's context change meanwhile.
type muxStream struct {
	conn *clientConn
	st   *yamux.Stream
	in   frameReader
	ctx  context.Context // of the call
	stop func() bool     // stops watching ctx

	mu    sync.Mutex
	final error // what Recv returns from now on
	asked bool  // Stop was called
}

func newMuxStream(ctx context.Context, conn *clientConn, st *yamux.Stream) *muxStream {
	s := &muxStream{
		conn: conn,
		st:   st,
		in:   frameReader{src: st, limit: conn.client.cfg.MaxMessage},
		ctx:  ctx,
	}
	// ctx may end before AfterFunc returns, so the mutex guards stop like final.
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop = context.AfterFunc(ctx, func() { _ = s.end(context.Cause(ctx)) })
	return s
}

// Recv implements [Stream].
func (s *muxStream) Recv(ctx context.Context, v any) error {
	for {
		if err := s.ended(); err != nil {
			return err
		}
		typ, payload, ok, err := s.in.buffered()
		if err != nil {
			return s.end(fmt.Errorf("answer from %s: %w: %w", s.conn.addr, ErrIncomplete, err))
		}
		if ok {
			return s.take(typ, payload, v)
		}
		if err := s.fill(ctx); err != nil {
			return err
		}
	}
}

// Pending implements [Stream].
func (s *muxStream) Pending() bool { return s.in.whole() || s.ended() != nil }

// take handles one frame.
func (s *muxStream) take(typ byte, payload []byte, v any) error {
	switch typ {
	case frameItem:
		if err := decode(payload, v); err != nil {
			return fmt.Errorf("answer from %s: %w", s.conn.addr, err)
		}
		return nil
	case frameEnd:
		return s.end(io.EOF)
	case frameError:
		return s.end(decodeError(payload))
	}
	return s.end(fmt.Errorf("answer from %s: frame type %d: %w: %w", s.conn.addr, typ, ErrIncomplete, errFrame))
}

// fill waits for more of the answer. The end of ctx is not final, unless it is the call's
// own context.
func (s *muxStream) fill(ctx context.Context) error {
	if ctx.Done() != nil && ctx.Done() != s.ctx.Done() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		woken := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			s.st.SetReadDeadline(interrupt)
			close(woken)
		})
		defer func() {
			if !stop() {
				<-woken
				s.clearDeadline()
			}
		}()
	}
	err := s.in.fill()
	switch {
	case err == nil:
		return nil
	case s.ended() != nil:
		return s.ended()
	case ctx.Err() != nil && errors.Is(err, yamux.ErrTimeout):
		return context.Cause(ctx)
	case s.conn.client.ctx.Err() != nil:
		return s.end(ErrClientClosed)
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF // io.EOF would mean a complete answer
	}
	return s.end(fmt.Errorf("answer from %s: %w: %w", s.conn.addr, ErrIncomplete, s.conn.failure(err)))
}

// clearDeadline clears the interrupt of a context, but not that of a stream that has
// ended.
func (s *muxStream) clearDeadline() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.final == nil {
		s.st.SetReadDeadline(noDeadline)
	}
}

func (s *muxStream) ended() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.final
}

// end makes err the final result, unless there is one already, and frees the stream. It
// returns the final result, for Recv.
func (s *muxStream) end(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.final != nil {
		return s.final
	}
	s.final = err
	s.stop()
	s.st.SetReadDeadline(interrupt)
	// Closing the stream cancels the handler. It may block while the peer does not read.
	s.conn.spawn(func() { s.st.Close() })
	s.conn.release()
	return err
}

// Stop implements [Stream].
func (s *muxStream) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked || s.final != nil {
		return
	}
	s.asked = true
	// It may block while the peer does not read. The end of the stream ends that.
	s.conn.spawn(func() { _, _ = s.st.Write(stopFrame) })
}

// Close implements [Stream].
func (s *muxStream) Close() { _ = s.end(ErrStreamClosed) }
