//go:build linux

package fenced

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

func (c *conn) readLoop(handle func(header, []byte) error, limit func(kind) int) error {
	for {
		if err := c.room(); err != nil {
			return err
		}
		h, body, err := c.read(limit)
		if err != nil {
			return err
		}
		if err := handle(h, body); err != nil {
			return err
		}
	}
}

// read reads one frame. The body is valid until the next call.
func (c *conn) read(limit func(kind) int) (header, []byte, error) {
	var b [headerBytes]byte
	if err := c.readFull(b[:]); err != nil {
		return header{}, nil, err
	}
	h := parseHeader(&b)
	if n := limit(h.kind); uint64(h.length) > uint64(n) {
		return h, nil, fmt.Errorf("frame of kind %d has %d bytes, at most %d: %w", h.kind, h.length, n, errProtocol)
	}
	const step = 64 << 10 // memory grows with what has arrived, not with what is claimed
	c.body = c.body[:0]
	for left := int(h.length); left > 0; {
		n, at := min(left, step), len(c.body)
		if cap(c.body) < at+n {
			grown := make([]byte, at, max(at+n, 2*cap(c.body)))
			copy(grown, c.body)
			c.body = grown
		}
		c.body = c.body[:at+n]
		if err := c.readFull(c.body[at:]); err != nil {
			return h, nil, err
		}
		left -= n
	}
	return h, c.body, nil
}

func (c *conn) readFull(p []byte) error {
	for len(p) > 0 {
		if c.in == c.out {
			if err := c.fill(); err != nil {
				return err
			}
		}
		n := copy(p, c.buf[c.in:c.out])
		c.in += n
		p = p[n:]
	}
	return nil
}

// fill reads from the socket. The peer sends something at least every quarter of
// the silence timeout.
func (c *conn) fill() error {
	if err := c.uc.SetReadDeadline(time.Now().Add(c.silence)); err != nil {
		return c.lost(err)
	}
	if !c.takesFDs { // the kernel drops descriptors that are sent nevertheless
		n, err := c.uc.Read(c.buf)
		if err != nil {
			return c.lost(err)
		}
		c.in, c.out = 0, n
		return nil
	}
	var oob [64]byte
	n, oobn, flags, _, err := c.uc.ReadMsgUnix(c.buf, oob[:unix.CmsgSpace(4*maxFDs)])
	if oobn > 0 {
		if err := c.takeFDs(oob[:oobn]); err != nil {
			return err
		}
	}
	switch {
	case err != nil:
		return c.lost(err)
	case flags&unix.MSG_CTRUNC != 0 || len(c.fds) > maxFDs:
		return fmt.Errorf("peer sends file descriptors that were not requested: %w", errProtocol)
	}
	c.in, c.out = 0, n
	return nil
}

func (c *conn) takeFDs(oob []byte) error {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return fmt.Errorf("read descriptors: %w", err)
	}
	for _, m := range msgs {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return fmt.Errorf("read descriptors: %w", err)
		}
		c.fds = append(c.fds, fds...)
	}
	return nil
}

// claimFD returns the descriptor that came with the frame just read, 0 if none did.
// The caller closes it.
func (c *conn) claimFD() int {
	if len(c.fds) == 0 {
		return 0
	}
	fd := c.fds[0]
	c.fds = c.fds[1:]
	return fd
}
