//go:build linux

package fenced

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/wire"
)

// conn is a connection: a reader, a writer goroutine, and the queue between them.
// What frames mean is the caller's business.
type conn struct {
	uc      *net.UnixConn
	silence time.Duration // of the peer, before it counts as dead

	done     chan struct{} // closed by fail
	failOnce sync.Once
	cause    error // why; set before done is closed

	wake  chan struct{} // to the writer: there is something to send
	space chan struct{} // to the reader: the queue has room

	mu      sync.Mutex
	queue   []frame
	closing bool // send the queue, nothing else, and close

	// Of the reader.
	in, out  int // buf[in:out] was read and not used
	buf      []byte
	takesFDs bool
	fds      []int // arrived, not claimed by a frame yet
	body     []byte
}

const maxFDs = 4 // in one message, and unclaimed ones

func newConn(uc *net.UnixConn, silence time.Duration, takesFDs bool) *conn {
	return &conn{
		uc: uc, silence: silence, takesFDs: takesFDs, buf: make([]byte, 32<<10),
		done: make(chan struct{}), wake: make(chan struct{}, 1), space: make(chan struct{}, 1),
	}
}

// fail ends the connection; the first cause counts. It does not wait.
func (c *conn) fail(cause error) {
	c.failOnce.Do(func() {
		c.cause = cause
		close(c.done)
		_ = c.uc.Close()
	})
}

// run serves the connection with handle until it fails, and returns the cause.
func (c *conn) run(handle func(header, []byte) error, limit func(kind) int) error {
	var wg sync.WaitGroup
	wg.Go(func() {
		err := c.writeLoop()
		if !errors.Is(err, errFlushed) {
			wire.AwaitLastWord(c.done, flushTime)
		}
		c.fail(err)
	})
	c.fail(c.readLoop(handle, limit))
	wg.Wait()
	c.dropFDs()
	return c.cause
}

func (c *conn) dropFDs() {
	for _, fd := range c.fds {
		_ = unix.Close(fd)
	}
	c.fds = nil
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.queue {
		f.closeFD()
	}
	c.queue, c.closing = nil, true
}

func (f frame) closeFD() {
	if f.fd > 0 {
		_ = unix.Close(f.fd)
	}
}

func (c *conn) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// send queues frames, one right behind the other. Their number is bounded by what
// the peer may ask for, and by the reader, which waits for room.
func (c *conn) send(fs ...frame) {
	c.mu.Lock()
	if c.closing {
		for _, f := range fs {
			f.closeFD()
		}
	} else {
		c.queue = append(c.queue, fs...)
	}
	c.mu.Unlock()
	c.signal()
}

// bye closes the connection after what is queued and a last word were sent, or
// after flushTime.
func (c *conn) bye(why string) {
	c.send(frame{header: header{kind: kindBye}, body: []byte(why)})
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	c.signal()
	time.AfterFunc(flushTime, func() { c.fail(errFlushed) })
}

// errFlushed ends a connection that was closed in an orderly way.
var errFlushed = errors.New("connection closed")

// room waits while too many frames are queued: a peer that does not read its
// answers is not read from either.
func (c *conn) room() error {
	for {
		c.mu.Lock()
		n := len(c.queue)
		c.mu.Unlock()
		if n < maxQueued {
			return nil
		}
		select {
		case <-c.space:
		case <-c.done:
			return c.cause
		}
	}
}

func (c *conn) writeLoop() error {
	var buf []byte
	for {
		c.mu.Lock()
		frames, closing := c.queue, c.closing
		c.queue = nil
		c.mu.Unlock()
		if len(frames) == 0 {
			if closing {
				return errFlushed
			}
			select {
			case <-c.wake:
				continue
			case <-c.done:
				return c.cause
			}
		}
		err := c.write(frames, &buf)
		for _, f := range frames {
			f.closeFD()
		}
		if err != nil {
			return err
		}
		select {
		case c.space <- struct{}{}:
		default:
		}
	}
}

// write sends frames with few system calls. A descriptor travels with the first
// byte of its frame.
func (c *conn) write(frames []frame, buf *[]byte) error {
	if err := c.uc.SetWriteDeadline(time.Now().Add(c.silence)); err != nil {
		return c.lost(err)
	}
	b := (*buf)[:0]
	flush := func(oob []byte) error {
		for len(b) > 0 {
			n, _, err := c.uc.WriteMsgUnix(b, oob, nil)
			if err != nil {
				return c.lost(err)
			}
			b, oob = b[n:], nil
		}
		b = (*buf)[:0]
		return nil
	}
	for _, f := range frames {
		if f.fd > 0 {
			if err := flush(nil); err != nil {
				return err
			}
		}
		b = f.append(b)
		if cap(b) > cap(*buf) && cap(b) <= 64<<10 {
			*buf = b[:0]
		}
		if f.fd > 0 {
			if err := flush(unix.UnixRights(f.fd)); err != nil {
				return err
			}
		}
	}
	return flush(nil)
}

// lost wraps an error of the socket.
func (c *conn) lost(err error) error {
	switch {
	case errors.Is(err, net.ErrClosed):
		select {
		case <-c.done:
			return c.cause
		default:
		}
	case errors.Is(err, io.EOF), errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		err = errors.New("connection closed by the peer")
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("peer is silent for %s", c.silence)
	}
	return fmt.Errorf("%w: %w", err, nixl.ErrRemoteDisconnect)
}
