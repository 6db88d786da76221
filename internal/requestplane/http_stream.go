package requestplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// httpStream is the caller's side of one request over HTTP. Recv is for one goroutine. The
// mutex guards the fields that Close and the end of the call's context change meanwhile.
type httpStream struct {
	conn   *clientConn
	link   *httpLink
	number uint64      // on the link
	in     frameReader // of the body, once ready is closed
	ctx    context.Context
	call   context.Context // of the HTTP request; ends with the stream
	cancel context.CancelFunc
	over   chan struct{} // closed when the stream has ended

	ready  chan struct{} // closed when the body or failed is set
	body   io.ReadCloser
	failed error

	filling chan error // result of a fill that outlived its Recv; for Recv only
	stop    func() bool

	mu       sync.Mutex
	final    error // what Recv returns from now on
	complete bool  // final came from the server
	asked    bool  // Stop was called
}

func newHTTPStream(ctx context.Context, conn *clientConn) *httpStream {
	s := &httpStream{conn: conn, ctx: ctx, ready: make(chan struct{}), over: make(chan struct{})}
	s.call, s.cancel = context.WithCancel(context.Background())
	return s
}

// handOver makes the stream end with the context of the call. From here on it holds its
// place on the connection.
func (s *httpStream) handOver() *httpStream {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop = context.AfterFunc(s.ctx, func() { _ = s.end(context.Cause(s.ctx), false) })
	return s
}

// run sends the request and holds the answer until the stream has ended. It belongs to the
// connection.
func (s *httpStream) run(l *httpLink, req *http.Request) {
	resp, err := l.conn.RoundTrip(req)
	if err == nil {
		s.body, err = answerReader(resp)
	}
	s.failed = err
	if err == nil {
		s.in = frameReader{src: s.body, limit: s.conn.client.cfg.MaxMessage}
	}
	close(s.ready)
	select {
	case <-s.over:
	case <-l.wire.gone: // what has arrived can still be read
		return
	}
	defer s.cancel()
	if err != nil {
		return
	}
	if s.complete {
		// The end of the HTTP answer follows its final frame. Closing the body before
		// would send a reset.
		timer := time.AfterFunc(drainTime, s.cancel)
		defer timer.Stop()
		_, _ = io.CopyN(io.Discard, s.body, 1)
	}
	_ = s.body.Close()
}

// drop ends a stream that was not handed over.
func (s *httpStream) drop() {
	s.cancel()
	close(s.over)
}

// Recv implements [Stream].
func (s *httpStream) Recv(ctx context.Context, v any) error {
	for {
		if err := s.ended(); err != nil {
			return err
		}
		if s.filling == nil && s.isReady() && s.failed == nil {
			typ, payload, ok, err := s.in.buffered()
			if err != nil {
				return s.end(fmt.Errorf("answer from %s: %w: %w", s.conn.addr, ErrIncomplete, err), false)
			}
			if ok {
				return s.take(typ, payload, v)
			}
		}
		if err := s.fill(ctx); err != nil {
			return err
		}
	}
}

// Pending implements [Stream].
func (s *httpStream) Pending() bool {
	if s.ended() != nil {
		return true
	}
	if s.filling != nil {
		return len(s.filling) > 0
	}
	return s.isReady() && (s.failed != nil || s.in.whole())
}

func (s *httpStream) isReady() bool {
	select {
	case <-s.ready:
		return true
	default:
		return false
	}
}

// take handles one frame.
func (s *httpStream) take(typ byte, payload []byte, v any) error {
	switch typ {
	case frameItem:
		if err := decode(payload, v); err != nil {
			return fmt.Errorf("answer from %s: %w", s.conn.addr, err)
		}
		return nil
	case frameEnd:
		return s.end(io.EOF, true)
	case frameError:
		return s.end(decodeError(payload), true)
	}
	return s.end(fmt.Errorf("answer from %s: frame type %d: %w: %w", s.conn.addr, typ, ErrIncomplete, errFrame), false)
}

// fill waits for more of the answer. The end of ctx is not final, unless it is the call's
// own context.
func (s *httpStream) fill(ctx context.Context) error {
	select {
	case <-s.ready:
	case <-s.over:
		return s.ended()
	case <-ctx.Done():
		return s.interrupted(ctx)
	}
	if s.failed != nil {
		return s.broken(s.failed)
	}
	if s.filling == nil && (ctx.Done() == nil || ctx.Done() == s.ctx.Done()) {
		return s.filled(s.in.fill()) // the end of the call interrupts it
	}
	if s.filling == nil {
		if ctx.Err() != nil {
			return s.interrupted(ctx)
		}
		filling := make(chan error, 1)
		if !s.conn.spawn(func() { filling <- s.in.fill() }) {
			return s.filled(s.in.fill()) // the connection has ended, so it does not wait
		}
		s.filling = filling
	}
	select {
	case err := <-s.filling:
		s.filling = nil
		return s.filled(err)
	case <-ctx.Done():
		return s.interrupted(ctx)
	}
}

func (s *httpStream) interrupted(ctx context.Context) error {
	if err := s.ended(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

func (s *httpStream) filled(err error) error {
	if err == nil {
		return nil
	}
	return s.broken(err)
}

// broken ends the stream with the reason why its answer is incomplete.
func (s *httpStream) broken(err error) error {
	if final := s.ended(); final != nil {
		return final
	}
	if s.conn.client.ctx.Err() != nil {
		return s.end(ErrClientClosed, false)
	}
	var reset resetError
	if errors.As(err, &reset) && reset.Code == refusedStream {
		return s.end(&RemoteError{Kind: KindOverloaded, Message: "too many streams on one connection"}, false)
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF // io.EOF would mean a complete answer
	}
	return s.end(fmt.Errorf("answer from %s: %w: %w", s.conn.addr, ErrIncomplete, s.conn.failure(err)), false)
}

// resetError takes the shape of the error of a stream that the peer has reset: net/http
// converts its own to it.
type resetError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (resetError) Error() string { return "stream reset" }

const refusedStream = 0x7 // RFC 9113, section 7: the server has not processed the request

func (s *httpStream) ended() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.final
}

// end makes err the final result, unless there is one already, and frees the stream. It
// returns the final result, for Recv.
func (s *httpStream) end(err error, complete bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.final != nil {
		return s.final
	}
	s.final, s.complete = err, complete
	s.stop()
	if !complete {
		s.cancel() // tells the server, without blocking
	}
	close(s.over)
	s.conn.release()
	return err
}

// Stop implements [Stream].
func (s *httpStream) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked || s.final != nil {
		return
	}
	s.asked = true
	s.conn.spawn(func() { s.link.stop(s.call, s.number) })
}

// Close implements [Stream].
func (s *httpStream) Close() { _ = s.end(ErrStreamClosed, false) }
