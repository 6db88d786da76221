package tcp

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/wire"
)

// target is one inbound connection. Every part that was opened on it is answered
// exactly once.
type target struct {
	*conn
	t  *transport
	in *inbound

	mu        sync.Mutex
	writes    map[uint64]*writePart // until committed or aborted
	reads     map[uint64]*readPart  // until the writer is through
	openDescs int
}

// writePart is a part of a peer's write into this agent's memory. One that was
// refused or revoked stays, as a stub that swallows data, until the peer ends it.
type writePart struct {
	recvStream
	id       uint64
	grant    *nixl.Grant // nil for one that was refused
	descs    int
	answered atomic.Bool
}

// readPart is a part of a peer's read from this agent's memory.
type readPart struct {
	sendStream
	grant *nixl.Grant
	descs int
}

func newTarget(t *transport, c *conn) *target {
	r := &target{conn: c, t: t, writes: map[uint64]*writePart{}, reads: map[uint64]*readPart{}}
	c.role = r
	return r
}

func (c *target) frame(h header) error {
	err := c.handle(h)
	if errors.Is(err, errProtocol) {
		c.t.host.Refused(nixl.RefusedMalformed)
	}
	return err
}

func (c *target) handle(h header) error {
	l := c.t.host.Limits()
	switch h.kind {
	case kindData:
		p := c.write(h.id)
		if p == nil {
			return fmt.Errorf("data for part %d, which is no open write: %w", h.id, errProtocol)
		}
		return c.readData(h, &p.recvStream)
	case kindCommit:
		return c.commit(h.id, h.arg)
	case kindAbort:
		return c.abort(h.id)
	}

	limit := 0
	switch h.kind {
	case kindWrite, kindRead:
		limit = accessBytes + wire.DescBytes*l.Descs
	case kindNotify:
		limit = l.NotifySize
	case kindProbeClose:
		limit = len(nixl.TicketID{})
	case kindBye:
		limit = helloBytes
	}
	body, err := c.readBody(h, limit)
	if err != nil {
		return err
	}
	switch h.kind {
	case kindWrite, kindRead:
		return c.open(h, body)
	case kindNotify:
		if sum := c.noteSum(body); sum != h.arg {
			c.t.host.Refused(nixl.RefusedChecksum)
			return c.reply(resultFrame(h.id, fmt.Errorf("notification: %w", errChecksum(h.arg, uint32(sum)))))
		}
		return c.in.deliver(body, func(err error) { c.send(resultFrame(h.id, err)) })
	case kindPing:
		return c.reply(frame{header: header{kind: kindPong}})
	case kindProbe:
		probe, err := c.t.host.OpenProbe(c.in.from.Name)
		if err != nil {
			return c.reply(resultFrame(h.id, err))
		}
		return c.reply(frame{header{kind: kindProbeInfo, id: h.id}, wire.EncodeProbe(probe)})
	case kindProbeClose:
		var id nixl.TicketID
		copy(id[:], body)
		c.t.host.CloseProbe(id)
		return nil
	case kindBye:
		return wire.Left(body)
	}
	return fmt.Errorf("frame of kind %d from an initiator: %w", h.kind, errProtocol)
}

func resultFrame(id uint64, err error) frame {
	f := frame{header: header{kind: kindResult, id: id}}
	if err != nil {
		f.status = nixl.StatusOf(err)
		f.body = wire.Text(err)
	}
	return f
}

func (c *target) write(id uint64) *writePart {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writes[id]
}

func (c *target) known(id uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writes[id] != nil || c.reads[id] != nil
}

// open begins a part of a write or a read.
func (c *target) open(h header, body []byte) error {
	a, err := parseAccess(body)
	if err != nil {
		return err
	}
	switch l := c.t.host.Limits(); {
	case c.known(h.id):
		return fmt.Errorf("part %d is open already: %w", h.id, errProtocol)
	case len(a.descs) > l.Descs:
		return fmt.Errorf("part of %d descriptors: %w", len(a.descs), errProtocol)
	}
	if err := c.reserve(len(a.descs)); err != nil {
		c.t.host.Refused(nixl.RefusedLimit)
		return err
	}
	sum := checksum(0, body)
	if h.kind == kindRead {
		return c.openRead(h, a, sum)
	}
	return c.openWrite(h, a, sum)
}

// reserve counts a part. Initiators keep to what the welcome said; the slack is
// for parts they have given up and the abort of which is under way.
func (c *target) reserve(descs int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.t.limits()
	if len(c.writes)+len(c.reads) >= 2*int(w.open) || c.openDescs+descs > 2*int(w.openDescs) {
		return fmt.Errorf("%d parts with %d descriptors are open: %w", len(c.writes)+len(c.reads), c.openDescs, errProtocol)
	}
	c.openDescs += descs
	return nil
}

func (c *target) openWrite(h header, a access, sum uint32) error {
	p := &writePart{id: h.id, descs: len(a.descs), recvStream: recvStream{total: a.total, sum: sum}}
	grant, err := c.t.host.Acquire(nixl.Write, a.ticket, a.descs)
	if err != nil {
		p.gate.refuse()
		p.answered.Store(true)
	} else {
		p.grant, p.mem = grant, pieces{segs: grant.Segments()}
		p.gate.interrupt = c.interruptRead
		p.gate.quiet = func() { grant.Release(p.moved.Load()) }
	}
	c.mu.Lock()
	c.writes[h.id] = p
	c.mu.Unlock()
	if err != nil {
		return c.reply(resultFrame(h.id, err))
	}
	grant.OnStop(func() {
		if p.gate.shut() {
			c.answer(p, grant.StopCause())
		}
	})
	return nil
}

// answer sends the one result of a write part. It does not wait: it is called
// when a ticket is revoked, too.
func (c *target) answer(p *writePart, err error) {
	if p.answered.CompareAndSwap(false, true) {
		c.send(resultFrame(p.id, err))
	}
}

// remove forgets a write part.
func (c *target) remove(p *writePart) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.writes, p.id)
	c.openDescs -= p.descs
}

// commit completes a write part: its bytes are in the memory and count, unless
// the ticket was revoked before.
func (c *target) commit(id, sum uint64) error {
	p := c.write(id)
	if p == nil || p.off != p.total {
		return fmt.Errorf("commit of part %d, which is not complete: %w", id, errProtocol)
	}
	c.remove(p)
	if !p.gate.enter() {
		return nil // revoked or refused, and answered
	}
	err := c.verify(p, sum)
	if err == nil {
		err = p.grant.Commit()
	}
	p.gate.leave()
	if !p.gate.shut() {
		return nil // revoked meanwhile
	}
	p.answered.Store(true)
	return c.reply(resultFrame(id, err))
}

// verify compares what has arrived of a write part with what was sent.
func (c *target) verify(p *writePart, sum uint64) error {
	if !c.sums || sum == uint64(p.sum) {
		return nil
	}
	c.t.host.Refused(nixl.RefusedChecksum)
	return fmt.Errorf("write part %d: %w", p.id, errChecksum(sum, p.sum))
}

// abort ends a part the initiator has given up.
func (c *target) abort(id uint64) error {
	c.mu.Lock()
	w, r := c.writes[id], c.reads[id]
	c.mu.Unlock()
	canceled := fmt.Errorf("given up by the initiator: %w", nixl.ErrCanceled)
	switch {
	case w != nil:
		c.remove(w)
		w.gate.shut()
		c.answer(w, canceled)
	case r != nil:
		r.gate.shut()
		c.signal() // the writer answers
	}
	return nil // else it has ended meanwhile
}

func (c *target) openRead(h header, a access, sum uint32) error {
	grant, err := c.t.host.Acquire(nixl.Read, a.ticket, a.descs)
	if err != nil {
		c.unreserve(len(a.descs))
		return c.reply(resultFrame(h.id, err))
	}
	p := &readPart{grant: grant, descs: len(a.descs), sendStream: sendStream{
		id: h.id, mem: pieces{segs: grant.Segments()}, total: a.total, sum: sum, tail: resultFrame(h.id, nil).append(nil),
	}}
	p.gate.interrupt = c.interruptWrite
	p.gate.quiet = func() { grant.Release(p.moved.Load()) }
	c.mu.Lock()
	c.reads[h.id] = p
	c.mu.Unlock()
	c.stream(&p.sendStream)
	grant.OnStop(func() {
		p.gate.shut()
		c.signal()
	})
	return nil
}

func (c *target) unreserve(descs int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.openDescs -= descs
}

// sent is called by the writer when a read part is through or was shut. The
// result of a complete one has been sent right behind its data.
func (c *target) sent(s *sendStream) {
	c.mu.Lock()
	p := c.reads[s.id]
	delete(c.reads, s.id)
	c.openDescs -= p.descs
	c.mu.Unlock()
	if s.completed() {
		return
	}
	err := fmt.Errorf("given up by the initiator: %w", nixl.ErrCanceled)
	if p.grant.Stopped() {
		err = p.grant.StopCause()
	}
	c.send(resultFrame(s.id, err))
}

// abandon lets go of all memory after the connection has ended.
func (c *target) abandon() {
	c.mu.Lock()
	writes, reads := c.writes, c.reads
	c.writes, c.reads = nil, nil
	c.mu.Unlock()
	for _, p := range writes {
		p.gate.shut()
	}
	for _, p := range reads {
		p.gate.shut()
	}
}
