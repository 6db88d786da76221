package frontend

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// connKey is the context key of a request's connection.
type connKey struct{}

// withConn stores the connection of requests in their context, for watch.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// client watches whether the client of one request is still connected.
//
// The HTTP server ends the context of a request when it reads the end of the stream. That
// says only that the client will send nothing more: it may have shut down its side for
// writing and wait for the answer. Only sending something shows whether it is still
// there, because the host of a client that has closed its socket resets the connection.
// So the frontend sends a probe to a client that half closed: an interim response (100
// Continue, which all clients of HTTP/1.1 skip) or, in a stream that has begun, a
// comment. A reset that follows ends the context. Clients of HTTP/1.0 do not know interim
// responses. If they close, the frontend notices when it writes the answer.
//
// Over TLS, the end of the stream counts as the end of the client: no client is known that
// shuts down one side of TLS and waits. Over HTTP/2, clients say when they leave a request.
type client struct {
	// cancel ends the work for the client. The cause is context.Canceled if the client
	// left.
	cancel context.CancelCauseFunc
	// half is closed when the client has shut down its side; the handler must then probe.
	half chan struct{}

	conn  net.Conn
	stop  chan struct{}
	ended sync.WaitGroup

	mu      sync.Mutex
	over    bool // the request has ended
	waiting bool // run waits for a reset
}

// watch returns a context that ends when the client has left, and not before. The caller
// must call leave when the request has ended.
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

// leave stops watching and waits for run.
func (c *client) leave() {
	close(c.stop)
	c.mu.Lock()
	c.over = true
	waiting := c.waiting
	c.mu.Unlock()
	if waiting { // nothing more will come over the connection, and nothing else reads it
		_ = c.conn.SetReadDeadline(time.Unix(1, 0))
	}
	c.ended.Wait()
	c.cancel(nil)
}

// probe sends an interim response that the client skips, before the answer has begun.
func probe(w http.ResponseWriter, r *http.Request) {
	if r.ProtoAtLeast(1, 1) {
		w.WriteHeader(http.StatusContinue)
	}
}
