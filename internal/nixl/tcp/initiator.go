package tcp

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/wire"
)

// initiator is one connection of a session.
type initiator struct {
	*conn
	s      *session
	limits welcome

	pm        sync.Mutex
	gone      error // the connection has ended
	lastID    uint64
	parts     map[uint64]*part // opened, or about to be; until the target has answered
	openDescs int
	waiting   []*part // beyond what the target takes at a time
	calls     map[uint64]func(body []byte, err error)
}

func newInitiator(s *session, c *conn, w welcome) *initiator {
	c.sums = w.checksums
	i := &initiator{conn: c, s: s, limits: w, parts: map[uint64]*part{}, calls: map[uint64]func([]byte, error){}}
	c.role = i
	return i
}

// call sends a frame that is answered once.
func (c *initiator) call(f frame, done func(body []byte, err error)) {
	c.pm.Lock()
	if c.gone != nil {
		err := c.gone
		c.pm.Unlock()
		done(nil, err) // never under session.mu: the session has ended before
		return
	}
	c.lastID++
	f.id = c.lastID
	c.calls[f.id] = done
	c.send(f)
	c.pm.Unlock()
}

// begin starts a part, or queues it while the target has enough of them.
func (c *initiator) begin(p *part) {
	c.load.Add(int64(p.total))
	c.pm.Lock()
	defer c.pm.Unlock()
	c.waiting = append(c.waiting, p)
	c.admitLocked()
}

func (c *initiator) admitLocked() {
	for len(c.waiting) > 0 && c.gone == nil {
		p := c.waiting[0]
		if p.recv != nil && p.recv.gate.isShut() {
			c.waiting = c.waiting[1:]
			c.load.Add(-int64(p.total))
			continue
		}
		if len(c.parts) > 0 && (len(c.parts) >= int(c.limits.open) || c.openDescs+len(p.descs) > int(c.limits.openDescs)) {
			return
		}
		c.waiting[0] = nil
		c.waiting = c.waiting[1:]
		c.lastID++
		p.id = c.lastID
		c.parts[p.id] = p
		c.openDescs += len(p.descs)
		c.openPart(p)
	}
}

// openPart queues the first frame of a part.
func (c *initiator) openPart(p *part) {
	a := access{ticket: p.x.job.Ticket, total: p.total, descs: p.descs}.append(nil)
	if p.recv != nil {
		p.recv.sum = checksum(0, a)
		c.send(frame{header{kind: kindRead, id: p.id}, a})
		return
	}
	p.send.id, p.send.sum = p.id, checksum(0, a)
	p.send.open = frame{header{kind: kindWrite, id: p.id}, a}.append(nil)
	p.send.tail = frame{header: header{kind: kindCommit, id: p.id}}.append(nil)
	c.stream(p.send)
}

// drop gives up a part whose gate is shut.
func (c *initiator) drop(p *part) {
	c.pm.Lock()
	if i := slices.Index(c.waiting, p); i >= 0 {
		c.waiting = slices.Delete(c.waiting, i, i+1)
		c.load.Add(-int64(p.total))
		c.pm.Unlock()
		p.x.unopened(p)
		return
	}
	switch {
	case c.parts[p.id] != p:
	case p.recv != nil:
		c.send(frame{header: header{kind: kindAbort, id: p.id}})
	default:
		c.signal() // the writer finds the gate shut and sends the abort
	}
	c.pm.Unlock()
}

// sent is called by the writer when a write part is through or was shut.
func (c *initiator) sent(st *sendStream) {
	switch {
	case !st.opened(): // the target does not know of it
		if p := c.take(st.id); p != nil {
			p.x.unopened(p)
		}
	case !st.completed():
		c.send(frame{header: header{kind: kindAbort, id: st.id}})
	}
}

// take removes a part and lets the next one in.
func (c *initiator) take(id uint64) *part {
	c.pm.Lock()
	defer c.pm.Unlock()
	p := c.parts[id]
	if p != nil {
		delete(c.parts, id)
		c.openDescs -= len(p.descs)
		c.load.Add(-int64(p.total))
		c.admitLocked()
	}
	return p
}

func (c *initiator) frame(h header) error {
	switch h.kind {
	case kindData:
		c.pm.Lock()
		p := c.parts[h.id]
		c.pm.Unlock()
		if p == nil || p.recv == nil {
			return fmt.Errorf("data for part %d, which is no open read: %w", h.id, errProtocol)
		}
		return c.readData(h, p.recv)
	case kindResult, kindProbeInfo:
		body, err := c.readBody(h, helloBytes)
		if err != nil {
			return err
		}
		return c.result(h, body)
	case kindPong:
		_, err := c.readBody(h, 0)
		return err
	case kindBye:
		body, err := c.readBody(h, helloBytes)
		if err != nil {
			return err
		}
		return wire.Goodbye(body)
	}
	return fmt.Errorf("frame of kind %d from a target: %w", h.kind, errProtocol)
}

// result handles the answer to a part or a call.
func (c *initiator) result(h header, body []byte) error {
	var failure error
	if h.status != nixl.Success {
		failure = fmt.Errorf("peer %q: %s: %w", c.s.remote.Name, wire.Printable(body), wire.ResultStatus(h.status))
	}
	c.pm.Lock()
	done := c.calls[h.id]
	delete(c.calls, h.id)
	c.pm.Unlock()
	if done != nil {
		done(append([]byte(nil), body...), failure)
		return nil
	}
	p := c.take(h.id)
	if p == nil {
		return fmt.Errorf("answer to %d, which was not asked: %w", h.id, errProtocol)
	}
	if p.recv != nil {
		if failure == nil && p.recv.off != p.total {
			return fmt.Errorf("read part %d ended after %d of %d bytes: %w", h.id, p.recv.off, p.total, errProtocol)
		}
		if failure == nil && c.sums && h.arg != uint64(p.recv.sum) {
			c.s.t.host.Refused(nixl.RefusedChecksum)
			failure = fmt.Errorf("peer %q: read part %d: %w", c.s.remote.Name, h.id, errChecksum(h.arg, p.recv.sum))
		}
		p.recv.gate.shut()
	}
	p.x.answered(p, failure)
	return nil
}

// abandon ends all calls and shuts the gates of all parts after the connection is
// gone.
func (c *initiator) abandon(cause error) {
	c.pm.Lock()
	c.gone = cause
	calls := c.calls
	c.calls = nil
	c.waiting = nil
	c.pm.Unlock()
	for _, done := range calls {
		done(nil, cause)
	}
}

// interruptRead and interruptWrite make the system call under way return.
func (c *conn) interruptRead() { _ = c.nc.SetReadDeadline(time.Unix(1, 0)) }
func (c *conn) interruptWrite() {
	if !c.staged { // else the memory is not touched by system calls
		_ = c.nc.SetWriteDeadline(time.Unix(1, 0))
	}
}
