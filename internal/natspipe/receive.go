package natspipe

import (
	"fmt"

	"github.com/dynctl/dynctl/internal/events"
)

// receive takes one message from NATS. It does not wait.
func (c *Conn) receive(m events.CoreMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.err != nil || c.deaf {
		return
	}
	if m.Nobody {
		if c.remote == "" {
			c.failLocked(fmt.Errorf("%w: nobody listens there", ErrRefused), "")
			return
		}
		c.failLocked(fmt.Errorf("%w: the peer is gone", ErrBroken), "a message reached nobody")
		return
	}
	h, payload, err := parse(m.Data)
	if err == nil {
		err = c.acceptLocked(h, payload, m.Reply)
	}
	if err != nil {
		c.failLocked(fmt.Errorf("%w: %w", ErrBroken, err), err.Error())
	}
}

// acceptLocked applies one message. An error ends the pipe.
func (c *Conn) acceptLocked(h header, payload []byte, reply string) error {
	dialing := c.remote == ""
	if h.kind == kindReset {
		if len(payload) > maxReason {
			payload = payload[:maxReason]
		}
		why := fmt.Errorf("%w by peer: %q", ErrBroken, payload)
		if dialing {
			why = fmt.Errorf("%w by the listener: %q", ErrRefused, payload)
		}
		c.failLocked(why, "")
		return nil
	}
	switch {
	case h.number != c.expected:
		return fmt.Errorf("message %d came in place of %d", h.number, c.expected)
	case dialing != (h.kind == kindAccept):
		return fmt.Errorf("message of kind %d out of turn", h.kind)
	case h.allowed < c.limit:
		return fmt.Errorf("the peer allows %d bytes, and allowed %d", h.allowed, c.limit)
	case c.eof && h.kind != kindBeat && h.kind != kindAsk && h.kind != kindBye:
		return fmt.Errorf("message of kind %d after the end", h.kind)
	}
	c.expected++
	c.missed = 0
	if h.allowed > c.limit {
		c.limit = h.allowed
		c.writable.Broadcast()
	}
	switch h.kind {
	case kindAccept:
		if !isSubject(reply, 2) {
			return fmt.Errorf("%w: accepted by %q", errMessage, reply)
		}
		c.remote = reply
		close(c.opened)
	case kindData:
		return c.keepLocked(payload)
	case kindBeat:
	case kindAsk:
		c.hub.tell(errand{c, kindBeat, ""})
	case kindFin, kindBye:
		c.eof = true
		c.readable.Broadcast()
		if h.kind == kindBye {
			c.deaf = true
			c.writable.Broadcast()
		}
	default:
		return fmt.Errorf("%w: kind %d", errMessage, h.kind)
	}
	return nil
}

// keepLocked keeps bytes for Read.
func (c *Conn) keepLocked(payload []byte) error {
	c.received += uint64(len(payload))
	if len(payload) == 0 || c.received > c.allowed {
		return fmt.Errorf("%d bytes of %d that are allowed", c.received, c.allowed)
	}
	if c.off > 0 && len(c.in)+len(payload) > cap(c.in) {
		c.in, c.off = c.in[:copy(c.in, c.in[c.off:])], 0
	}
	c.in = append(c.in, payload...)
	c.readable.Signal()
	return nil
}

// fail ends the pipe, unless it has ended. The peer is told, if there is a text for it.
func (c *Conn) fail(err error, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil && !c.closed {
		c.failLocked(err, text)
	}
}

func (c *Conn) failLocked(err error, text string) {
	c.err = err
	close(c.over)
	c.hub.remove(c, 0) // whatever still comes is answered with a reset
	c.readable.Broadcast()
	c.writable.Broadcast()
	if text != "" && c.remote != "" {
		c.hub.tell(errand{c, kindReset, text})
	}
}

// beat counts a beat of the hub. It reports whether one is to be sent, and ends a pipe whose
// peer has missed too many.
func (c *Conn) beat() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.remote == "" || c.closed || c.err != nil || c.deaf {
		return false
	}
	c.grants = 0
	c.missed++
	if c.missed > c.hub.cfg.Missed {
		c.failLocked(fmt.Errorf("%w: the peer does not answer", ErrBroken), "silence")
		return false
	}
	return true
}
