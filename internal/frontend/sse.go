package frontend

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// sse is a stream of server-sent events. Generating goroutines put events in, and the
// handler's goroutine writes them. Events that gather during one write go out with the
// next. The headers go out with the first event, so that an earlier error can still be an
// ordinary response.
type sse struct {
	w       http.ResponseWriter
	ctl     *http.ResponseController
	timeout time.Duration     // of each write
	begin   func(http.Header) // adds headers, before they go out; nil for none
	begun   bool              // headers are out
	buf     []byte            // being written, or free

	mu      sync.Mutex
	pending []byte        // whole events, not yet written
	wake    chan struct{} // capacity 1: something is pending
	room    chan struct{} // capacity 1: pending was taken
}

// maxPending bounds the bytes of events that wait for a slow client. Beyond it the
// generation waits.
const maxPending = 64 << 10

func newSSE(w http.ResponseWriter, timeout time.Duration) *sse {
	return &sse{
		w: w, ctl: http.NewResponseController(w), timeout: timeout,
		wake: make(chan struct{}, 1), room: make(chan struct{}, 1),
	}
}

// put adds the events of a delta. It waits for room until ctx ends. Calls must not
// overlap.
func (s *sse) put(ctx context.Context, a answerer, d delta) error {
	s.mu.Lock()
	for len(s.pending) > maxPending {
		s.mu.Unlock()
		select {
		case <-s.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		s.mu.Lock()
	}
	s.pending = a.appendDelta(s.pending, d)
	s.mu.Unlock()
	signal(s.wake)
	return nil
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// take moves pending events to buf.
func (s *sse) take() {
	s.mu.Lock()
	s.buf, s.pending = s.pending, s.buf[:0]
	s.mu.Unlock()
	signal(s.room)
}

// flush writes pending events.
func (s *sse) flush() error {
	s.take()
	return s.write()
}

// comment writes a line that clients ignore, to keep the connection alive.
func (s *sse) comment() error {
	s.buf = append(s.buf[:0], ": keep-alive\n\n"...)
	return s.write()
}

// end writes pending events, the last event if there is one, and the end marker. If
// failure is set, it is sent as the last event, or as the whole response if nothing was
// sent.
func (s *sse) end(last []byte, failure error) error {
	s.take()
	if failure != nil {
		e := asAPIError(failure)
		if !s.begun && len(s.buf) == 0 {
			e.write(s.w)
			return nil
		}
		last = append([]byte("data: "), e.body()...) // ends with a line break
		last = append(last, '\n')
	}
	s.buf = append(append(s.buf, last...), "data: [DONE]\n\n"...)
	return s.write()
}

// write sends buf to the client. Its error is always a clientGone.
func (s *sse) write() error {
	if len(s.buf) == 0 {
		return nil
	}
	_ = s.ctl.SetWriteDeadline(time.Now().Add(s.timeout)) // the server takes it back
	if !s.begun {
		s.begun = true
		h := s.w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no") // proxies would hold events back
		if s.begin != nil {
			s.begin(h)
		}
		s.w.WriteHeader(http.StatusOK)
	}
	if _, err := s.w.Write(s.buf); err != nil {
		return &clientGone{err}
	}
	if err := s.ctl.Flush(); err != nil {
		return &clientGone{err}
	}
	return nil
}

// clientGone is a failed write: the client has closed the connection or does not read.
type clientGone struct{ err error }

func (e *clientGone) Error() string { return "client gone: " + e.err.Error() }

func (e *clientGone) Unwrap() error { return context.Canceled }
