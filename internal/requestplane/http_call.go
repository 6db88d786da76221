package requestplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// httpCall is the server's side of one request over HTTP. The handler runs on the
// goroutine of the HTTP server; the outbox's writer sends the answer.
type httpCall struct {
	server *HTTPServer
	wire   *httpWire
	w      http.ResponseWriter
	rc     *http.ResponseController
	r      *http.Request
	form   httpForm
	out    *outbox

	begun atomic.Bool // an item was sent, and the HTTP status with it
	lost  atomic.Bool // an item could not be sent
	over  atomic.Bool // the answer is written: the end of the request means nothing
}

// answer serves one HTTP request.
func (s *HTTPServer) answer(w http.ResponseWriter, r *http.Request) {
	wire, ok := r.Context().Value(wireKey{}).(*httpWire)
	if !ok || !s.authorized(wire, w, r) {
		return
	}
	if strings.HasPrefix(r.URL.Path, stopRoot) {
		s.stopped(wire, w, r)
		return
	}
	if !strings.HasPrefix(r.URL.Path, cluster.RPCRoot) {
		http.Error(w, "endpoints are at "+cluster.RPCRoot, http.StatusNotFound)
		return
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "use POST", http.StatusMethodNotAllowed)
		return
	}
	c := &httpCall{server: s, wire: wire, w: w, rc: http.NewResponseController(w), r: r, form: formOf(r)}
	if !s.requests.add() {
		panic(http.ErrAbortHandler)
	}
	defer s.requests.done()
	c.serve()
}

func (c *httpCall) serve() {
	reg := c.server.reg
	c.w.Header().Set("Content-Type", c.form.answerType())
	c.out = newOutbox(c.form.writer(c))
	if !reg.reserve() {
		c.refuse(reg.overloaded())
		return
	}
	defer reg.release()
	req, timeout, err := c.readRequest()
	if err != nil {
		c.server.log.Warn("request refused", "peer", c.r.RemoteAddr, "err", err)
		c.refuse(&RemoteError{Kind: KindInvalidArgument, Message: err.Error()})
		return
	}
	req.Stranger = !c.wire.proved
	var end func()
	req.Stop, end = c.stoppable()
	defer end()
	e, refusal := reg.enter(req.Path)
	if refusal != nil {
		c.refuse(refusal)
		return
	}
	defer reg.leave(e)

	ctx, cancel := context.WithCancelCause(c.server.ctx)
	defer cancel(nil)
	if timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, timeout, ErrTimeout)
		defer stop()
	}
	defer onDone(ctx, func() { c.interrupted(context.Cause(ctx)) })()
	defer onDone(c.r.Context(), func() { c.left(cancel) })()
	defer c.over.Store(true)
	c.run(ctx, e, req)
}

// onDone runs f when ctx ends. The returned function prevents that, or waits for f: the HTTP
// server must not be asked for anything after the request.
func onDone(ctx context.Context, f func()) (release func()) {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		f()
	})
	return func() {
		if !stop() {
			<-done
		}
	}
}

// run runs the handler and writes the final frame.
func (c *httpCall) run(ctx context.Context, e *endpoint, req *Request) {
	finished := false
	defer func() {
		if !finished { // the caller is gone, or the handler ended its goroutine
			c.setWriteDeadline(interrupt)
			c.out.abandon()
		}
	}()
	failure := c.server.reg.run(ctx, e, req, func(item any) error { return c.send(req, item) })
	cause := context.Cause(ctx)
	if cause != nil && !errors.Is(cause, ErrTimeout) {
		panic(http.ErrAbortHandler) // resets the stream
	}
	finished = true
	if failure == nil && c.lost.Load() {
		// The handler continued after a failed send, so the answer lacks an item.
		failure = remoteError(ctx, cmp.Or(cause, errItemLost))
	}
	c.finish(failure)
}

func (c *httpCall) send(req *Request, item any) (err error) {
	defer func() {
		if err != nil {
			c.lost.Store(true)
		}
	}()
	b, err := encodeItem(item, c.server.cfg.Limits.MaxMessage)
	if err != nil {
		return fmt.Errorf("request %s: %w", req.ID, err)
	}
	c.begun.Store(true)
	return c.out.add(b)
}

// finish writes the final frame. Without any item before it, the HTTP status says what it
// says.
func (c *httpCall) finish(failure *RemoteError) {
	if failure == nil {
		c.out.finish(frameEnd, nil)
		return
	}
	if !c.begun.Load() {
		c.w.WriteHeader(httpStatus(failure.Kind))
	}
	c.out.finish(frameError, encodeError(failure))
}

// refuse answers with an error and no items.
func (c *httpCall) refuse(e *RemoteError) {
	c.setWriteDeadline(time.Now().Add(lastWords))
	c.finish(e)
}

// interrupted runs once when the request's context ends early.
func (c *httpCall) interrupted(cause error) {
	if errors.Is(cause, context.Canceled) { // serve has finished the request
		return
	}
	c.out.refuse(cause) // before the deadline makes a write fail
	if errors.Is(cause, ErrTimeout) {
		c.setWriteDeadline(time.Now().Add(lastWords))
		return
	}
	c.setWriteDeadline(interrupt)
}

// left runs when the HTTP request has ended: the caller left, or the answer is written.
func (c *httpCall) left(cancel context.CancelCauseFunc) {
	if !c.over.Load() {
		cancel(c.departure())
	}
}

// departure returns why the caller left.
func (c *httpCall) departure() error {
	if why := c.wire.reason(); why != nil {
		return fmt.Errorf("%w: %w", ErrClientGone, why)
	}
	return ErrStopped
}

func (c *httpCall) setWriteDeadline(t time.Time) {
	_ = c.rc.SetWriteDeadline(t) // fails only after the end of the request
}

// Write sends whole frames to the caller at once.
func (c *httpCall) Write(p []byte) (int, error) {
	_, err := c.w.Write(p)
	if err == nil {
		err = c.rc.Flush()
	}
	if err != nil {
		return 0, c.departure()
	}
	return len(p), nil
}

// httpStatus is the HTTP status for a kind of error.
func httpStatus(k Kind) int {
	switch k {
	case KindInvalidArgument:
		return http.StatusBadRequest
	case KindUnknownEndpoint:
		return http.StatusNotFound
	case KindOverloaded:
		return http.StatusTooManyRequests
	case KindDraining, KindUnavailable, KindNotPrefilled:
		return http.StatusServiceUnavailable
	case KindTimeout:
		return http.StatusGatewayTimeout
	}
	return http.StatusInternalServerError
}
