package frontend

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// sse is a stream of server-sent events. Goroutines that generate put events in and flush
// them. One of them writes at a time: events that gather during its write it writes next.
// The headers go out with the first event, so that an earlier error can still be an
// ordinary response.
type sse struct {
	w       http.ResponseWriter
	ctl     *http.ResponseController
	timeout time.Duration     // after a write of that time, attend gives the client up; after twice the time, it fails
	begin   func(http.Header) // adds headers, before they go out; nil for none

	// Of whoever writes.
	buf      []byte    // being written, or free
	deadline time.Time // of writes, as the connection has it

	mu      sync.Mutex
	pending []byte    // whole events, not yet written
	writing bool      // somebody writes
	begun   bool      // headers are out, or on their way
	wrote   time.Time // when something was last written
	since   time.Time // when the write under way began
	failure error     // of a write: a clientGone. Nothing is written after it.
	idle    sync.Cond // nobody writes, any more

	room chan struct{} // capacity 1: pending was taken
}

// maxPending bounds the bytes of events that wait for a slow client. Beyond it the
// generation waits.
const maxPending = 64 << 10

func newSSE(w http.ResponseWriter, timeout time.Duration) *sse {
	s := &sse{w: w, ctl: http.NewResponseController(w), timeout: timeout, wrote: time.Now(), room: make(chan struct{}, 1)}
	s.idle.L = &s.mu
	return s
}

// put adds the events of a delta, which go out with the next flush. It waits for room until
// ctx ends. Calls must not overlap.
func (s *sse) put(ctx context.Context, a answerer, d delta) error {
	s.mu.Lock()
	for len(s.pending) > maxPending && s.failure == nil {
		if s.flushLocked() {
			continue
		}
		s.mu.Unlock()
		select {
		case <-s.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	s.pending = a.appendDelta(s.pending, d)
	return s.failure
}

// flush writes pending events, unless somebody writes, who goes on with them.
func (s *sse) flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flushLocked()
	return s.failure
}

// flushLocked is flush. It returns false if somebody else writes.
func (s *sse) flushLocked() bool {
	if s.writing {
		return false
	}
	s.writing = true
	for len(s.pending) > 0 && s.failure == nil {
		s.buf, s.pending = s.pending, s.buf[:0]
		select {
		case s.room <- struct{}{}:
		default:
		}
		first := !s.begun
		s.begun = true
		now := time.Now()
		s.since = now
		s.mu.Unlock()
		err := s.write(first, now)
		s.mu.Lock()
		s.wrote = now
		if err != nil {
			s.failure = &clientGone{err}
		}
	}
	s.writing = false
	s.idle.Broadcast()
	return true
}

// failed returns the error of the write that failed, if one did.
func (s *sse) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

// commentLocked writes a line that clients ignore.
func (s *sse) commentLocked() {
	s.pending = append(s.pending, ": keep-alive\n\n"...)
	s.flushLocked()
}

// attend writes comments while a stream is silent, and a probe when half is closed, until
// over is closed, a write has failed, or one takes too long.
func (s *sse) attend(r *http.Request, half, over <-chan struct{}, silence time.Duration) (gone error) {
	timer := time.NewTimer(min(silence, s.timeout))
	defer timer.Stop()
	for gone == nil {
		select {
		case <-timer.C:
			var wait time.Duration
			wait, gone = s.keepAlive(silence)
			timer.Reset(wait)
		case <-half:
			half = nil
			gone = s.probe(r)
		case <-over:
			return nil
		}
	}
	return gone
}

// keepAlive writes a comment if nothing was written for a time. It returns how long to wait
// before the next call, or an error if the write under way takes too long. That write may still
// succeed: then the stream can tell its client the error.
func (s *sse) keepAlive(silence time.Duration) (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writing { // who writes is not silent
		left := s.timeout - time.Since(s.since)
		if left <= 0 && s.failure == nil {
			return 0, slowReader(s.timeout)
		}
		return min(silence, left), s.failure
	}
	if s.begun {
		s.extend(time.Now()) // over HTTP/2, a stream ends at its deadline whether or not it writes
	}
	if left := silence - time.Since(s.wrote); left > 0 {
		return min(left, s.timeout), s.failure
	}
	s.commentLocked()
	return min(silence, s.timeout), s.failure
}

// probe sends something to a client that has shut down its side: a comment, or an interim
// response if the answer has not begun.
func (s *sse) probe(r *http.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun {
		s.commentLocked()
		return s.failure
	}
	probe(s.w, r)
	return nil
}

// end writes pending events, the last event if there is one, and the end marker. If
// failure is set, it is sent as the last event, or as the whole response if nothing was
// sent. Nothing may be put any more.
func (s *sse) end(last []byte, failure error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.writing {
		s.idle.Wait() // each write has a deadline
	}
	if failure != nil {
		e := asAPIError(failure)
		if !s.begun && len(s.pending) == 0 {
			e.write(s.w)
			return nil
		}
		last = append([]byte("data: "), e.body()...) // ends with a line break
		last = append(last, '\n')
	}
	s.pending = append(append(s.pending, last...), "data: [DONE]\n\n"...)
	s.flushLocked()
	return s.failure
}

// write sends buf to the client.
func (s *sse) write(first bool, now time.Time) error {
	s.extend(now)
	if first {
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
		return err
	}
	return s.ctl.Flush()
}

// extend moves the deadline of writes, which is between one and a half and two timeouts away
// then. The caller writes, or keeps others from it.
func (s *sse) extend(now time.Time) {
	if s.deadline.Sub(now) < s.timeout*3/2 { // to set it costs more than to encode an event
		s.deadline = now.Add(2 * s.timeout)
		_ = s.ctl.SetWriteDeadline(s.deadline) // the server takes it back
	}
}

// clientGone is a failed write: the client has closed the connection or does not read.
type clientGone struct{ err error }

func (e *clientGone) Error() string { return "client gone: " + e.err.Error() }

func (e *clientGone) Unwrap() error { return context.Canceled }
