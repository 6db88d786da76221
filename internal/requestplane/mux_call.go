package requestplane

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"
)

// lastWords limits the write of the final frame for a request that was refused or is past
// its deadline.
const lastWords = time.Second

// muxCall is the server's side of one request. Three goroutines share it: serve runs the
// handler, watch detects that the caller left, and the outbox's writer sends the answer.
type muxCall struct {
	server *MuxServer
	sess   *session
	st     *yamux.Stream
	out    *outbox

	lost atomic.Bool // an item could not be sent
	over atomic.Bool // the answer is written: the end of the stream means nothing
}

func (c *muxCall) serve(ctx context.Context) {
	defer c.st.Close()
	reg := c.server.reg
	c.out = newOutbox(c.st)
	in := &frameReader{src: c.st, limit: c.server.cfg.Limits.MaxMessage}
	if !reg.reserve() {
		c.refuseUnread(in, reg.overloaded())
		return
	}
	defer reg.release()

	req, timeout, err := c.readRequest(in)
	if err != nil {
		c.badRequest(in, err)
		return
	}
	e, refusal := reg.enter(req.Path)
	if refusal != nil {
		c.refuse(refusal)
		return
	}
	defer reg.leave(e)

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, timeout, ErrTimeout)
		defer stop()
	}
	stopWatch := context.AfterFunc(ctx, func() { c.interrupted(context.Cause(ctx)) })
	defer stopWatch()

	var watcher sync.WaitGroup
	stop := make(chan struct{})
	req.Stop = stop
	early := in.rest()
	watcher.Go(func() { c.watch(early, stop, cancel) })
	defer watcher.Wait()
	defer c.endWatch()
	c.answer(ctx, e, req)
}

// answer runs the handler and writes the final frame.
func (c *muxCall) answer(ctx context.Context, e *endpoint, req *Request) {
	finished := false
	defer func() {
		if !finished { // the caller is gone, or the handler ended its goroutine
			c.st.SetWriteDeadline(interrupt)
			c.out.abandon()
		}
	}()
	failure := c.server.reg.run(ctx, e, req, func(item any) error { return c.send(req, item) })
	cause := context.Cause(ctx)
	if cause != nil && !errors.Is(cause, ErrTimeout) {
		return
	}
	finished = true
	if failure == nil && c.lost.Load() {
		// The handler continued after a failed send, so the answer lacks an item.
		failure = remoteError(ctx, cmp.Or(cause, errItemLost))
	}
	if failure != nil {
		c.out.finish(frameError, encodeError(failure))
		return
	}
	c.out.finish(frameEnd, nil)
}

func (c *muxCall) send(req *Request, item any) (err error) {
	defer func() {
		if err != nil {
			c.lost.Store(true)
		}
	}()
	b, err := encodeItem(item, c.server.cfg.Limits.MaxMessage)
	if err != nil {
		return fmt.Errorf("request %s: %w", req.ID, err)
	}
	return c.out.add(b)
}

// interrupted runs once when the request's context ends early.
func (c *muxCall) interrupted(cause error) {
	switch {
	case errors.Is(cause, context.Canceled): // serve has finished the request
		return
	case errors.Is(cause, ErrTimeout):
		c.st.SetWriteDeadline(time.Now().Add(lastWords))
	default: // the caller is gone
		c.st.SetWriteDeadline(interrupt)
	}
	c.out.refuse(cause)
}

// stopFrame is all that a caller may send after its request, once.
var stopFrame = appendFrame(nil, frameStop, nil)

// watch waits for the caller to stop the handler or to leave. early was received with the
// request. After a stop, any end of the read means that the caller left.
func (c *muxCall) watch(early []byte, stop chan<- struct{}, cancel context.CancelCauseFunc) {
	got, buf := early, make([]byte, len(stopFrame))
	var n int
	var err error
	for err == nil && len(got) < len(stopFrame) && bytes.HasPrefix(stopFrame, got) {
		n, err = c.st.Read(buf[len(got):])
		got = append(got, buf[len(got):len(got)+n]...)
	}
	if err == nil && bytes.Equal(got, stopFrame) {
		close(stop)
		n, err = c.st.Read(buf[:1])
		got = buf[:n]
	}
	switch {
	case c.over.Load():
	case c.sess.IsClosed():
		cancel(fmt.Errorf("%w: %w", ErrClientGone, c.sess.reason()))
	case len(got) > 0:
		c.server.log.Warn("caller broke the protocol", "peer", c.sess.RemoteAddr().String())
		cancel(ErrStopped)
	default:
		c.server.log.Debug("caller left", "err", err)
		cancel(ErrStopped)
	}
}

func (c *muxCall) endWatch() {
	c.over.Store(true)
	c.st.SetReadDeadline(interrupt)
}

// readRequest reads the one frame that callers send. Its first bytes must arrive soon. A
// large rest may take its time; flow control and the keep-alive limit it.
func (c *muxCall) readRequest(in *frameReader) (*Request, time.Duration, error) {
	c.st.SetReadDeadline(time.Now().Add(c.server.cfg.HandshakeTimeout))
	if err := in.fill(); err != nil {
		return nil, 0, err
	}
	c.st.SetReadDeadline(time.Time{})
	typ, payload, err := in.next()
	if err != nil {
		return nil, 0, err
	}
	if typ != frameRequest {
		return nil, 0, fmt.Errorf("frame type %d in place of a request: %w", typ, errFrame)
	}
	h, body, err := decodeRequest(payload)
	if err != nil {
		return nil, 0, err
	}
	// The reader and its buffer are not used again, so the handler may own body.
	return &Request{ID: h.ID, Path: h.Path, Headers: h.Headers, Body: body}, h.Timeout, nil
}

// badRequest answers a request that could not be read, if the caller is still there.
func (c *muxCall) badRequest(in *frameReader, err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, yamux.ErrTimeout) || c.sess.IsClosed() {
		return
	}
	c.server.log.Warn("request refused", "peer", c.sess.RemoteAddr().String(), "err", err)
	c.refuseUnread(in, &RemoteError{Kind: KindInvalidArgument, Message: err.Error()})
}

// refuseUnread refuses a request that was not read to its end. A caller that is blocked
// in sending would not see the refusal, so the rest is first read and discarded.
func (c *muxCall) refuseUnread(in *frameReader, e *RemoteError) {
	c.st.SetReadDeadline(time.Now().Add(c.server.cfg.HandshakeTimeout))
	if in.skip() == nil {
		c.refuse(e)
	}
}

// refuse answers with an error and no items.
func (c *muxCall) refuse(e *RemoteError) {
	c.st.SetWriteDeadline(time.Now().Add(lastWords))
	c.out.finish(frameError, encodeError(e))
}
