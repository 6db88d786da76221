package requestplane

import (
	"fmt"
	"sync"
	"time"
)

// errNotOpened is returned when a connection was dead before a stream was opened.
var errNotOpened = fmt.Errorf("%w before the request was sent", ErrDisconnected)

// clientConn is one pooled connection. For a moment it can be both in the pool and
// closed.
type clientConn struct {
	client *NetClient
	addr   string
	link   link

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

// failure returns the reason why the connection ended, if it did, in place of a stream's
// error.
func (c *clientConn) failure(err error) error {
	if r := c.link.reason(); r != nil {
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
	_ = c.link.Close() // what it closes has ended either way
	c.work.Wait()
	if err := c.link.reason(); err != nil {
		c.client.log.Debug("connection ended", "addr", c.addr, "reason", err)
	}
}
