package requestplane

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
)

// errNotOpened is returned when a connection was dead before a stream was opened.
var errNotOpened = fmt.Errorf("%w before the request was sent", ErrDisconnected)

// clientConn is one pooled connection. For a moment it can be both in the pool and
// closed.
type clientConn struct {
	client *TCPClient
	addr   string
	sess   *session

	// Guarded by client.mu.
	streams   int
	idleSince time.Time // when streams became 0

	mu     sync.Mutex
	closed bool
	work   sync.WaitGroup // openings and closings of streams
}

// spawn runs f on a goroutine of the connection. After close it runs nothing.
func (c *clientConn) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.work.Go(f)
	return true
}

// opened is the result of opening a stream.
type opened struct {
	st  *yamux.Stream
	err error
}

// start opens a stream and sends the request. Both may block while the peer does not
// read, regardless of ctx, so they run on another goroutine.
func (c *clientConn) start(ctx context.Context, frame []byte) (*tcpStream, error) {
	ready := make(chan opened, 1)
	if !c.spawn(func() { ready <- c.open(ctx, frame) }) {
		return nil, errNotOpened
	}
	select {
	case o := <-ready:
		if o.err != nil {
			return nil, o.err
		}
		return newTCPStream(ctx, c, o.st), nil
	case <-ctx.Done():
		// That goroutine sees it, too. A stream that was opened meanwhile must be closed.
		c.spawn(func() {
			if o := <-ready; o.st != nil {
				o.st.Close()
			}
		})
		return nil, context.Cause(ctx)
	}
}

func (c *clientConn) open(ctx context.Context, frame []byte) opened {
	if n := c.sess.NumStreams() - c.inUse(); n > maxClosing {
		c.client.log.Warn("server does not close its side of streams: closing the connection", "addr", c.addr, "streams", n)
		c.sess.Close()
	}
	st, err := c.sess.OpenStream()
	if err != nil {
		return opened{nil, fmt.Errorf("%w: %w", errNotOpened, err)}
	}
	stop := context.AfterFunc(ctx, func() { st.SetWriteDeadline(interrupt) })
	_, err = st.Write(frame)
	if stop() && err == nil {
		return opened{st, nil}
	}
	st.Close()
	if ctx.Err() != nil {
		return opened{nil, context.Cause(ctx)}
	}
	return opened{nil, fmt.Errorf("%w: send request: %w", ErrDisconnected, c.failure(err))}
}

// failure returns the reason why the connection ended, if it did, in place of a stream's
// error.
func (c *clientConn) failure(err error) error {
	if r := c.sess.reason(); r != nil {
		return r
	}
	return err
}

func (c *clientConn) inUse() int {
	c.client.mu.Lock()
	defer c.client.mu.Unlock()
	return c.streams
}

// release ends one use of the connection.
func (c *clientConn) release() {
	c.client.mu.Lock()
	defer c.client.mu.Unlock()
	c.streams--
	if c.streams == 0 {
		c.idleSince = time.Now()
	}
}

// close ends the connection and everything on it. It may be called again.
func (c *clientConn) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.sess.Close()
	c.work.Wait()
	if err := c.sess.reason(); err != nil && !errors.Is(err, yamux.ErrSessionShutdown) {
		c.client.log.Debug("connection ended", "addr", c.addr, "reason", err)
	}
}
