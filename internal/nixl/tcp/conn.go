package tcp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/wire"
)

// errFlushed ends a connection that was closed in an orderly way.
var errFlushed = errors.New("connection closed")

// conn is one connection after the hello: a reader goroutine, a writer goroutine
// and the queue between them. What frames mean is the role's business.
type conn struct {
	nc      net.Conn
	br      *bufio.Reader
	vector  *vector       // nil: br reads everything
	silence time.Duration // of the peer, before it counts as dead
	ping    time.Duration // interval of pings; 0 on the target
	role    role
	sums    bool // parts and notifications have checksums
	staged  bool // memory is copied before it is sent: see staged.go

	done     chan struct{} // closed by fail
	failOnce sync.Once
	cause    error // why; set before done is closed

	wake  chan struct{} // to the writer: there is something to send
	space chan struct{} // to the reader: the reply queue has room
	load  atomic.Int64  // bytes of the parts queued or running here

	mu      sync.Mutex
	queue   []frame
	sending []*sendStream
	closing bool // send the queue, nothing else, and close

	stage   []byte // of the writer, for bytes to be encrypted
	scratch []byte // of the reader, for discarded bytes
	body    []byte // of the reader, for bodies
}

// role handles the frames of an initiator or a target.
type role interface {
	// frame handles one frame and reads its body from the connection. The error
	// ends the connection.
	frame(h header) error
	// sent is called by the writer when a stream is through or was shut.
	sent(s *sendStream)
}

// sendStream is memory being sent: a part of a write at the initiator, of a read
// at the target.
type sendStream struct {
	id    uint64
	gate  gate
	mem   pieces
	total uint64
	open  []byte        // encoded frame to be sent before the first data; the writer clears it
	tail  []byte        // encoded frame to be sent behind the last data; the writer clears it
	sum   uint32        // of the access and the bytes sent so far, if there are checksums
	off   uint64        // sent; used by the writer
	moved atomic.Uint64 // bytes that were taken from the memory
}

// opened and completed report how far the writer got; for role.sent.
func (s *sendStream) opened() bool    { return s.open == nil }
func (s *sendStream) completed() bool { return s.tail == nil }

func newConn(nc net.Conn, br *bufio.Reader, silence, ping time.Duration) *conn {
	return &conn{
		nc: nc, br: br, vector: newVector(nc), silence: silence, ping: ping,
		done: make(chan struct{}), wake: make(chan struct{}, 1), space: make(chan struct{}, 1),
	}
}

// fail ends the connection; the first cause counts. It does not wait.
func (c *conn) fail(cause error) {
	c.failOnce.Do(func() {
		c.cause = cause
		close(c.done)
		closeNow(c.nc)
	})
}

// bye closes the connection after what is queued and a last word were sent, or
// after flushTime.
func (c *conn) bye(why string) {
	c.mu.Lock()
	if !c.closing {
		c.closing = true
		c.queue = append(c.queue, frame{header{kind: kindBye}, []byte(why)})
	}
	c.mu.Unlock()
	c.signal()
	time.AfterFunc(flushTime, func() { c.fail(errFlushed) })
}

// run serves the connection until it fails and returns the cause. No memory is
// touched by it any more then.
func (c *conn) run() error {
	var wg sync.WaitGroup
	wg.Go(func() { c.fail(c.readLoop()) })
	wg.Go(func() {
		err := c.writeLoop()
		if !errors.Is(err, errFlushed) {
			wire.AwaitLastWord(c.done, flushTime)
		}
		c.fail(err)
	})
	wg.Wait()
	return c.cause
}

func (c *conn) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// send queues a frame. It is for frames whose number is bounded otherwise.
func (c *conn) send(f frame) {
	c.mu.Lock()
	c.queue = append(c.queue, f)
	c.mu.Unlock()
	c.signal()
}

// reply queues an answer to a frame just read, and waits while too many are
// queued: a peer that does not read its answers is not read from either.
func (c *conn) reply(f frame) error {
	for {
		c.mu.Lock()
		if len(c.queue) < maxReplies {
			c.queue = append(c.queue, f)
			c.mu.Unlock()
			c.signal()
			return nil
		}
		c.mu.Unlock()
		select {
		case <-c.space:
		case <-c.done:
			return c.cause
		}
	}
}

// stream queues memory to be sent.
func (c *conn) stream(s *sendStream) {
	c.mu.Lock()
	c.sending = append(c.sending, s)
	c.mu.Unlock()
	c.signal()
}

func (c *conn) readLoop() error {
	var b [headerBytes]byte
	for {
		if err := c.readFull(b[:]); err != nil {
			return err
		}
		if err := c.role.frame(parseHeader(&b)); err != nil {
			return err
		}
	}
}

// readFull reads control bytes. The peer sends something at least every quarter
// of the silence timeout.
func (c *conn) readFull(p []byte) error {
	for len(p) > 0 {
		if err := c.nc.SetReadDeadline(time.Now().Add(c.silence)); err != nil {
			return c.lost(err)
		}
		n, err := c.br.Read(p)
		p = p[n:]
		if err != nil && len(p) > 0 {
			return c.lost(err)
		}
	}
	return nil
}

// readBody reads a body of at most limit bytes; what it returns is valid until
// the next call. Memory grows with what has arrived, not with what is claimed.
func (c *conn) readBody(h header, limit int) ([]byte, error) {
	if uint64(h.length) > uint64(limit) {
		return nil, fmt.Errorf("frame of kind %d has %d bytes, at most %d: %w", h.kind, h.length, limit, errProtocol)
	}
	const step = 64 << 10
	c.body = c.body[:0]
	for left := int(h.length); left > 0; {
		n := min(left, step)
		at := len(c.body)
		if cap(c.body) < at+n {
			grown := make([]byte, at, max(at+n, 2*cap(c.body)))
			copy(grown, c.body)
			c.body = grown
		}
		c.body = c.body[:at+n]
		if err := c.readFull(c.body[at:]); err != nil {
			return nil, err
		}
		left -= n
	}
	return c.body, nil
}

// discard reads and drops n bytes.
func (c *conn) discard(n uint64) error {
	if c.scratch == nil {
		c.scratch = make([]byte, 64<<10)
	}
	for n > 0 {
		k := min(n, uint64(len(c.scratch)))
		if err := c.readFull(c.scratch[:k]); err != nil {
			return err
		}
		n -= k
	}
	return nil
}

// recvStream is memory being received: a part of a write at the target, of a
// read at the initiator.
type recvStream struct {
	gate  gate
	mem   pieces
	total uint64
	off   uint64        // received, discarded bytes included; used by the reader
	moved atomic.Uint64 // bytes that went into the memory
	sum   uint32        // of the access and the bytes received so far, if there are checksums; used by the reader
}

// readData reads the body of a data frame into the memory of s, or nowhere once
// the gate is shut.
func (c *conn) readData(h header, s *recvStream) error {
	n := uint64(h.length)
	if h.arg != s.off || n == 0 || n > s.total-s.off {
		return fmt.Errorf("part %d: %d bytes at %d of %d, expected offset %d: %w", h.id, n, h.arg, s.total, s.off, errProtocol)
	}
	s.off += n
	for n > 0 {
		k, open, err := c.readPiece(s, n)
		if err != nil {
			return err
		}
		if !open {
			return c.discard(n)
		}
		n -= k
	}
	return nil
}

// readPiece makes one read into the memory of s. open is false when the gate is
// shut and nothing was read.
func (c *conn) readPiece(s *recvStream, n uint64) (k uint64, open bool, err error) {
	if !s.gate.enter() {
		return 0, false, nil
	}
	defer s.gate.leave()
	if err := c.nc.SetReadDeadline(time.Now().Add(c.silence)); err != nil {
		return 0, false, c.lost(err)
	}
	if s.gate.isShut() { // its interrupt came before the deadline was set
		return 0, false, nil
	}
	got, err := c.readInto(&s.mem, n)
	if c.sums {
		for _, b := range s.mem.ahead(uint64(got), readPieces) {
			s.sum = checksum(s.sum, b)
		}
	}
	s.mem.skip(uint64(got))
	s.moved.Add(uint64(got))
	if err != nil && got == 0 {
		if errors.Is(err, os.ErrDeadlineExceeded) && s.gate.isShut() {
			return 0, false, nil
		}
		return 0, false, c.lost(err)
	}
	return uint64(got), true, nil
}

// readInto reads up to n bytes to where mem stands.
func (c *conn) readInto(mem *pieces, n uint64) (int, error) {
	if c.vector == nil || c.br.Buffered() > 0 {
		return c.br.Read(mem.head(n))
	}
	return c.vector.read(mem.ahead(n, readPieces))
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
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("connection closed by the peer")
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("peer is silent for %s", c.silence)
	}
	return fmt.Errorf("%w: %w", err, nixl.ErrRemoteDisconnect)
}
