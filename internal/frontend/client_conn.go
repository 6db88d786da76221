package frontend

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// connKey is where the context of a request has its connection.
type connKey struct{}

// withConn keeps the connection of requests, for client.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// client is who waits for the answer of one request. The HTTP server ends the context of
// a request when it reads the end of the stream, but that says only that the client will
// send nothing more: it may have shut down its side for writing and wait for the answer.
// Whether anybody is there shows when something is sent: the host of a client that has
// closed its socket resets the connection. So the client is asked: a client that half
// closed gets an interim response (100 Continue, which all clients of HTTP/1.1 skip) or,
// in a stream that has begun, a comment; the reset that may follow ends the context.
// Clients of HTTP/1.0 know no interim responses: those that close are noticed when the
// answer is written.
type client struct {
	// cancel ends what is done for the client; the cause is context.Canceled when it left.
	cancel context.CancelCauseFunc
	// half is closed when the client has shut down its side: probe then.
	half chan struct{}

	conn  net.Conn
	stop  chan struct{}
	ended sync.WaitGroup

	mu      sync.Mutex
	over    bool // the request is
	waiting bool // for a reset
}

// watch returns a context that ends when the client is gone, and not before. Its leave
// must be called when the request is over.
func watch(r *http.Request) (context.Context, *client) {
	conn, _ := r.Context().Value(connKey{}).(net.Conn)
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
	c := &client{cancel: cancel, half: make(chan struct{}), conn: conn, stop: make(chan struct{})}
	c.ended.Go(func() { c.run(r.Context()) })
	return ctx, c
}

func (c *client) run(request context.Context) {
	select {
	case <-request.Done():
	case <-c.stop:
		return
	}
	cause := context.Cause(request)
	if cause != context.Canceled || !halfClosed(c.conn) { //nolint:errorlint // a cause of ours wraps it when the server stops
		c.cancel(cause)
		return
	}
	c.mu.Lock()
	c.waiting = !c.over
	c.mu.Unlock()
	if !c.waiting {
		return
	}
	close(c.half)
	if waitReset(c.conn) == nil {
		c.cancel(context.Canceled)
	}
}

// leave ends the watching.
func (c *client) leave() {
	close(c.stop)
	c.mu.Lock()
	c.over = true
	waiting := c.waiting
	c.mu.Unlock()
	if waiting { // nothing more will come over the connection: nobody else reads it
		_ = c.conn.SetReadDeadline(time.Unix(1, 0))
	}
	c.ended.Wait()
	c.cancel(nil)
}

// probe sends something that the client skips, before the answer has begun.
func probe(w http.ResponseWriter, r *http.Request) {
	if r.ProtoAtLeast(1, 1) {
		w.WriteHeader(http.StatusContinue)
	}
}
