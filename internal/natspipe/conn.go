package natspipe

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/events"
)

// Errors of a [Conn], for errors.Is.
var (
	// ErrBroken is returned when the pipe has ended otherwise than by Close: a message is
	// missing, or the peer is gone or silent.
	ErrBroken = errors.New("pipe broken")
	// ErrRefused is returned by Dial when nobody listens, or the listener has no room.
	ErrRefused = errors.New("refused")
)

// Conn is one end of a pipe. All methods may be called concurrently. It never holds more
// unread bytes than it has allowed the peer to send. Make one with [Hub.Dial].
type Conn struct {
	hub     *Hub
	token   string
	own     string
	opened  chan struct{} // closed when remote is set
	over    chan struct{} // closed when the pipe is broken or closed
	writing sync.Mutex    // one Write at a time

	out     sync.Mutex // keeps messages in the order of their numbers
	next    uint64     // number of the next message
	scratch []byte

	mu       sync.Mutex
	readable sync.Cond
	writable sync.Cond
	remote   string // where the peer receives

	expected uint64 // number of the next message from the peer
	in       []byte // unread bytes are in[off:]
	off      int
	received uint64 // bytes that the peer has sent
	allowed  uint64 // bytes that it may send
	window   int    // how far allowed may be ahead of what was read
	grants   int    // how often allowed grew since the last beat
	eof      bool   // the peer writes no more
	deaf     bool   // the peer reads no more
	missed   int    // beats of the hub since the last message

	sent, limit uint64 // bytes sent, and that the peer allows
	finished    bool   // CloseWrite was called

	err    error // why the pipe broke
	closed bool

	readBy, writeBy time.Time
}

var _ net.Conn = (*Conn)(nil)

// Addr is the subject where an end of a pipe receives.
type Addr string

// Network implements [net.Addr].
func (Addr) Network() string { return "nats" }

// String implements [net.Addr].
func (a Addr) String() string { return string(a) }

// LocalAddr implements [net.Conn].
func (c *Conn) LocalAddr() net.Addr { return Addr(c.own) }

// RemoteAddr implements [net.Conn].
func (c *Conn) RemoteAddr() net.Addr {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Addr(c.remote)
}

// Read implements [net.Conn]. After the end of the pipe, bytes that have arrived in order
// can still be read.
func (c *Conn) Read(p []byte) (int, error) {
	n, grant, err := c.take(p)
	if grant {
		_ = c.send(kindBeat, nil) // the next beat makes up for one that fails
	}
	return n, err
}

func (c *Conn) take(p []byte) (n int, grant bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.off == len(c.in) {
		switch {
		case c.closed:
			return 0, false, net.ErrClosed
		case c.err != nil:
			return 0, false, c.err
		case c.eof:
			return 0, false, io.EOF
		case len(p) == 0:
			return 0, false, nil
		}
		if err := c.wait(&c.readable, &c.readBy); err != nil {
			return 0, false, err
		}
	}
	if c.closed {
		return 0, false, net.ErrClosed
	}
	n = copy(p, c.in[c.off:])
	if c.off += n; c.off == len(c.in) {
		if c.in, c.off = c.in[:0], 0; cap(c.in) > keepBuffer {
			c.in = nil
		}
	}
	return n, c.allowMore(), nil
}

// allowMore lets the peer send more once it has used half of the window. If that happens
// often, the window grows.
func (c *Conn) allowMore() bool {
	read := c.received - uint64(len(c.in)-c.off)
	if c.eof || c.err != nil || int(c.allowed-read) > c.window/2 {
		return false
	}
	if c.grants++; c.grants > 1 {
		c.window += c.hub.takeExtra(min(c.window, maxWindow-c.window))
	}
	c.allowed = read + uint64(c.window)
	return true
}

// Write implements [net.Conn]. It waits while the peer reads too slowly, and while there is
// no connection to NATS.
func (c *Conn) Write(p []byte) (written int, err error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	for len(p) > 0 {
		n, err := c.reserve(len(p))
		if err != nil {
			return written, err
		}
		if err := c.sendWhenOnline(p[:n]); err != nil {
			c.mu.Lock()
			c.sent -= uint64(n)
			c.mu.Unlock()
			return written, err
		}
		written, p = written+n, p[n:]
	}
	return written, nil
}

// reserve waits until the peer allows bytes, and returns for how many of n the next message
// has room.
func (c *Conn) reserve(n int) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if err := c.unwritable(); err != nil {
			return 0, err
		}
		if c.sent < c.limit {
			n = min(n, int(min(c.limit-c.sent, maxWindow)), c.hub.chunk())
			c.sent += uint64(n)
			return n, nil
		}
		if err := c.wait(&c.writable, &c.writeBy); err != nil {
			return 0, err
		}
	}
}

func (c *Conn) unwritable() error {
	switch {
	case c.closed, c.finished:
		return net.ErrClosed
	case c.err != nil:
		return c.err
	case c.deaf:
		return fmt.Errorf("%w: closed by peer", ErrBroken)
	case !c.writeBy.IsZero() && time.Now().After(c.writeBy):
		return os.ErrDeadlineExceeded
	}
	return nil
}

// wait waits for cond until a deadline, which may change meanwhile.
func (c *Conn) wait(cond *sync.Cond, until *time.Time) error {
	if !until.IsZero() {
		left := time.Until(*until)
		if left <= 0 {
			return os.ErrDeadlineExceeded
		}
		defer time.AfterFunc(left, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			cond.Broadcast()
		}).Stop()
	}
	cond.Wait()
	return nil
}

const offlinePause = 10 * time.Millisecond

// sendWhenOnline sends bytes, and waits for NATS if that is away.
func (c *Conn) sendWhenOnline(payload []byte) error {
	for {
		err := c.send(kindData, payload)
		if !errors.Is(err, events.ErrUnavailable) {
			return err
		}
		c.mu.Lock()
		until := c.writeBy
		c.mu.Unlock()
		if until.IsZero() {
			until = time.Now().Add(time.Minute) // the loop goes on then
		}
		timer := time.NewTimer(time.Until(until))
		select {
		case <-c.hub.bus.Online():
			// The library's callback may be late, when a message cannot be sent already.
			timer.Reset(offlinePause)
			select {
			case <-timer.C:
			case <-c.over:
			}
		case <-timer.C:
		case <-c.over:
		}
		timer.Stop()
		c.mu.Lock()
		err = c.unwritable()
		c.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// send gives a message its number and sends it.
func (c *Conn) send(k kind, payload []byte) error {
	c.out.Lock()
	defer c.out.Unlock()
	return c.sendLocked(k, payload)
}

func (c *Conn) sendLocked(k kind, payload []byte) error {
	c.mu.Lock()
	to, h, err := c.remote, header{k, c.next, c.allowed}, c.err
	if c.closed && k != kindBye {
		err = net.ErrClosed
	}
	c.mu.Unlock()
	if err != nil && k != kindReset {
		return err
	}
	reply := ""
	switch k {
	case kindOpen, kindAccept, kindBeat, kindAsk: // NATS then says whether anybody listens
		reply = c.own
	}
	c.scratch = append(h.append(c.scratch[:0]), payload...)
	if err := c.hub.bus.Send(to, reply, c.scratch); err != nil {
		return err
	}
	c.next++
	return nil
}

// CloseWrite tells the peer that nothing more comes.
func (c *Conn) CloseWrite() error {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.mu.Lock()
	c.finished = true
	c.mu.Unlock()
	return c.send(kindFin, nil)
}

// Close implements [net.Conn]. It does not wait. The peer can read what was written before.
func (c *Conn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	broken, to := c.err != nil, c.remote
	if !broken {
		close(c.over)
	}
	c.readable.Broadcast()
	c.writable.Broadcast()
	c.in, c.off = nil, 0
	extra := c.window - baseWindow
	c.mu.Unlock()
	c.hub.remove(c, extra)
	if !broken && to != "" {
		c.hub.tell(errand{c, kindBye, ""})
	}
	return nil
}

// SetDeadline implements [net.Conn].
func (c *Conn) SetDeadline(t time.Time) error { return c.setDeadlines(&t, &t) }

// SetReadDeadline implements [net.Conn].
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadlines(&t, nil) }

// SetWriteDeadline implements [net.Conn].
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadlines(nil, &t) }

func (c *Conn) setDeadlines(read, write *time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	if read != nil {
		c.readBy = *read
		c.readable.Broadcast()
	}
	if write != nil {
		c.writeBy = *write
		c.writable.Broadcast()
	}
	return nil
}
