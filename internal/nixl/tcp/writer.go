package tcp

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// rotate limits the streams that share a connection chunk by chunk; later ones wait,
// so that the first of many finish early.
const rotate = 4

// maxBatch bounds the control bytes in front of a chunk.
const maxBatch = 256 << 10

// zeros pads what is left of a chunk whose memory must not be read any more.
var zeros [64 << 10]byte

// writeLoop sends queued frames and chunks of streams until the connection ends.
func (c *conn) writeLoop() error {
	var tick <-chan time.Time
	if c.ping > 0 {
		t := time.NewTicker(c.ping)
		defer t.Stop()
		tick = t.C
	}
	var buf []byte
	for {
		select {
		case <-tick:
			c.send(frame{header: header{kind: kindPing}})
		default:
		}
		var s *sendStream
		var closing bool
		buf, s, closing = c.next(buf[:0])
		switch {
		case s != nil:
			if err := c.writeChunk(buf, s); err != nil {
				return err
			}
			c.after(s)
		case len(buf) > 0:
			if err := c.writeControl(buf); err != nil {
				return err
			}
		case closing:
			return errFlushed
		default:
			select {
			case <-c.wake:
			case <-tick:
				c.send(frame{header: header{kind: kindPing}})
			case <-c.done:
				return c.cause
			}
		}
		if cap(buf) > 2*maxBatch {
			buf = nil
		}
	}
}

// next takes frames off the queue and finds the stream whose turn it is.
func (c *conn) next(buf []byte) (_ []byte, s *sendStream, closing bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := 0
	for taken < len(c.queue) && len(buf) < maxBatch {
		buf = c.queue[taken].append(buf)
		c.queue[taken] = frame{}
		taken++
	}
	if c.queue = c.queue[taken:]; len(c.queue) == 0 {
		c.queue = nil
	}
	if taken > 0 {
		select {
		case c.space <- struct{}{}:
		default:
		}
	}
	if len(c.sending) > 0 && len(c.queue) == 0 && !c.closing {
		s = c.sending[0]
	}
	return buf, s, c.closing
}

// after lets the next stream have its turn, or takes s off when it is through.
func (c *conn) after(s *sendStream) {
	if s.completed() {
		s.gate.shut()
	}
	through := s.gate.isShut()
	c.mu.Lock()
	rest := c.sending[1:]
	if !through && len(rest) > 0 {
		at := min(rotate-1, len(rest))
		copy(c.sending, rest[:at])
		c.sending[at] = s
	} else if through {
		c.sending[0] = nil
		c.sending = rest
	}
	c.mu.Unlock()
	if through {
		c.role.sent(s)
	}
}

// writeChunk sends the control bytes in buf, and behind them the next chunk of s
// unless its gate is shut.
func (c *conn) writeChunk(buf []byte, s *sendStream) error {
	if c.staged {
		return c.writeStaged(buf, s)
	}
	control := len(buf)
	if !s.gate.enter() {
		return c.writeControl(buf)
	}
	leave := sync.OnceFunc(s.gate.leave)
	defer leave()
	buf = append(buf, s.open...)
	mem := s.mem // s moves on only if the chunk is sent
	segs, n := mem.take(min(chunkBytes, s.total-s.off), chunkPieces)
	buf = header{kind: kindData, length: uint32(n), id: s.id, arg: s.off}.append(buf)
	bufs := append(net.Buffers{buf}, segs...)
	last := s.off+n == s.total
	if c.sums {
		for _, b := range segs {
			s.sum = checksum(s.sum, b)
		}
	}
	if last {
		s.seal(c.sums)
		bufs = append(bufs, s.tail)
	}
	if err := c.nc.SetWriteDeadline(time.Now().Add(c.silence)); err != nil {
		return c.lost(err)
	}
	if s.gate.isShut() { // its interrupt came before the deadline was set
		leave()
		return c.writeControl(buf[:control])
	}
	sent, err := bufs.WriteTo(c.nc)
	s.open, s.mem, s.off = nil, mem, s.off+n
	if err == nil {
		s.moved.Add(n)
		if last {
			s.tail = nil
		}
		return nil
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) || !s.gate.isShut() {
		return c.lost(err)
	}
	// Interrupted: the frame must be completed without touching the memory, and
	// without the tail, which would call the padding valid.
	leave()
	var rest net.Buffers
	head, data := int64(len(buf)), int64(n)
	switch {
	case sent < head:
		rest = append(rest, buf[sent:])
	case sent >= head+data: // all of it was sent; only the tail is not complete
		rest = append(rest, s.tail[sent-head-data:])
		s.tail = nil
		data = 0
	default:
		data -= sent - head
	}
	for data > 0 {
		k := min(data, int64(len(zeros)))
		rest = append(rest, zeros[:k])
		data -= k
	}
	return c.writeAll(rest)
}

// seal puts the checksum into the frame behind the last data.
func (s *sendStream) seal(sums bool) {
	if sums {
		setArg(s.tail, uint64(s.sum))
	}
}

// writeControl sends control bytes.
func (c *conn) writeControl(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if err := c.nc.SetWriteDeadline(time.Now().Add(c.silence)); err != nil {
		return c.lost(err)
	}
	if _, err := c.nc.Write(b); err != nil {
		return c.lost(err)
	}
	return nil
}

// writeAll completes a chunk that was interrupted.
func (c *conn) writeAll(bufs net.Buffers) error {
	if err := c.nc.SetWriteDeadline(time.Now().Add(c.silence)); err != nil {
		return c.lost(err)
	}
	if _, err := bufs.WriteTo(c.nc); err != nil {
		return c.lost(err)
	}
	return nil
}
