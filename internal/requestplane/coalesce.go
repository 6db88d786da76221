package requestplane

import (
	"bufio"
	"net"
	"sync"
	"time"
)

const (
	socketBuffer = 64 << 10  // read buffer of a connection
	maxUnsent    = 256 << 10 // bytes that may wait to be written to the socket
)

// coalescer is a connection that combines small writes. Write copies into a buffer and
// returns; one goroutine writes the buffer to the socket whenever the socket is free.
// Many small frames thus share a system call, and a single frame does not wait. The
// multiplexer above writes headers and bodies separately, and the frames of many streams
// one after the other: here they are combined.
//
// Write blocks when too much is unsent. Read is for one goroutine.
type coalescer struct {
	conn    net.Conn
	in      *bufio.Reader
	timeout time.Duration // of one write to the socket

	mu      sync.Mutex
	more    sync.Cond // the flusher waits for bytes or for the end
	room    sync.Cond // writers wait for space; flush waits for emptiness
	buf     []byte    // not yet taken by the flusher
	writing bool      // the flusher is in the system call
	err     error     // the reason why writes have ended; nil while they go on

	eof     chan struct{} // closed when the read side has ended
	eofOnce sync.Once
	done    chan struct{} // closed when the flusher has ended
}

func newCoalescer(conn net.Conn, timeout time.Duration) *coalescer {
	c := &coalescer{
		conn:    conn,
		in:      bufio.NewReaderSize(conn, socketBuffer),
		timeout: timeout,
		eof:     make(chan struct{}),
		done:    make(chan struct{}),
	}
	c.more.L, c.room.L = &c.mu, &c.mu
	go c.flushLoop()
	return c
}

// Read reads from the socket.
func (c *coalescer) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	if err != nil {
		c.eofOnce.Do(func() { close(c.eof) })
	}
	return n, err
}

// Write queues p.
func (c *coalescer) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.buf) >= maxUnsent && c.err == nil {
		c.room.Wait()
	}
	if c.err != nil {
		return 0, c.err
	}
	c.buf = append(c.buf, p...)
	if !c.writing {
		c.more.Signal()
	}
	return len(p), nil
}

func (c *coalescer) flushLoop() {
	defer close(c.done)
	var out []byte
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		for len(c.buf) == 0 && c.err == nil {
			c.more.Wait()
		}
		if c.err != nil {
			return
		}
		out, c.buf = c.buf, out[:0]
		c.writing = true
		c.room.Broadcast()
		c.mu.Unlock()

		err := c.conn.SetWriteDeadline(time.Now().Add(c.timeout))
		if err == nil {
			_, err = c.conn.Write(out)
		}

		c.mu.Lock()
		c.writing = false
		if cap(out) > 2*maxUnsent {
			out = nil
		}
		if err != nil {
			c.failLocked(err)
		}
		if len(c.buf) == 0 {
			c.room.Broadcast()
		}
	}
}

// failLocked ends the connection. The first reason is kept.
func (c *coalescer) failLocked(err error) {
	if c.err == nil {
		c.err = err
	}
	c.more.Broadcast()
	c.room.Broadcast()
	c.conn.Close()
}

// Close discards unsent bytes and closes the socket at once.
func (c *coalescer) Close() error {
	c.mu.Lock()
	c.failLocked(net.ErrClosed)
	c.mu.Unlock()
	<-c.done
	return nil
}

// hangUp sends the unsent bytes, signals the end to the peer, and waits for the peer to
// close its side. Each step has a time limit. Closing at once would let the kernel
// discard bytes that the peer has not read yet.
func (c *coalescer) hangUp(limit time.Duration) {
	timer := time.AfterFunc(limit, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.failLocked(net.ErrClosed)
	})
	defer timer.Stop()
	c.mu.Lock()
	for (len(c.buf) > 0 || c.writing) && c.err == nil {
		c.room.Wait()
	}
	ended := c.err != nil
	c.mu.Unlock()
	if ended {
		return
	}
	if cw, ok := c.conn.(interface{ CloseWrite() error }); !ok || cw.CloseWrite() != nil {
		return
	}
	wait := time.NewTimer(limit)
	defer wait.Stop()
	select {
	case <-c.eof:
	case <-c.done:
	case <-wait.C:
	}
}
