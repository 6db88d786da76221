package ucx

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/wire"
)

// inbound is the target's side of a connection of a peer. All of it runs on the
// engine's goroutine.
type inbound struct {
	t          *transport
	e          *engine
	from       nixl.Identity
	generation uint64
	port       *port
	address    []byte   // of the initiator's end
	socket     net.Conn // its end tells that the peer is gone

	accesses map[uint64]*access
	handed   map[uint64]bool // regions the peer has got the keys of
	notes    int             // notifications not accepted by the agent yet
	heard    time.Time
	deadline time.Time // of the last words, once they are said
	farewell string    // the last words
	word     []byte    // the peer's last one, whose message may still come until wordBy; nil without
	wordBy   time.Time
	ended    bool
}

// access is one access of a peer to memory of this agent under one grant. Either its device
// does it (direct), or the bytes come and go in messages.
type access struct {
	grant    *nixl.Grant
	op       nixl.Op
	total    uint64
	direct   bool
	moved    uint64   // in messages
	sending  outgoing // of a read
	released bool     // the grant
	end      *frame   // the peer is done, but not everything was sent
}

// release gives the grant back; nothing touches its memory any more.
func (a *access) release(moved uint64) {
	if !a.released {
		a.released = true
		a.grant.Release(min(moved, a.total))
	}
}

// letIn makes this agent's end of a connection. A newer session of an agent ends its
// older ones, so that late bytes of those do not meet its own.
func (t *transport) letIn(h hello) (*inbound, error) {
	for in := range t.inbound {
		if in.from.Name != h.ends.From.Name {
			continue
		}
		if in.from.Incarnation == h.ends.From.Incarnation && in.generation >= h.generation {
			return nil, fmt.Errorf("a newer session of agent %q is open: %w", h.ends.From.Name, nixl.ErrNotAllowed)
		}
		in.end(fmt.Errorf("agent %q connected again: %w", h.ends.From.Name, nixl.ErrRemoteDisconnect))
	}
	switch {
	case t.closed:
		return nil, errClosed
	case len(t.inbound) >= t.opts.MaxInbound:
		return nil, fmt.Errorf("%d connections are open: %w", len(t.inbound), nixl.ErrBackend)
	}
	in := &inbound{
		t: t, e: t.engine, from: h.ends.From, generation: h.generation,
		accesses: map[uint64]*access{}, handed: map[uint64]bool{}, heard: t.engine.now,
	}
	var err error
	if in.port, err = t.engine.newPort(in); err != nil {
		return nil, err
	}
	in.address = h.address
	t.inbound[in] = struct{}{}
	t.host.InboundUp(Name, in.from)
	return in, nil
}

// closeSocketIfEnded is for a connection that ended before its socket was known.
func (in *inbound) closeSocketIfEnded() {
	if in.ended {
		_ = in.socket.Close()
	}
}

func (in *inbound) frame(f frame) error {
	in.heard = in.e.now
	if in.port.ep == nil {
		// The way back, over the connection that the initiator has made: two that are made
		// at the same time can make UCX 1.13 abort the process.
		if err := in.port.connect(in.address); err != nil {
			return err
		}
	}
	err := in.handle(f)
	if errors.Is(err, errProtocol) {
		in.t.host.Refused(nixl.RefusedMalformed)
	}
	return err
}

func (in *inbound) handle(f frame) error {
	switch f.kind {
	case kindAccess:
		return in.access(f)
	case kindPull:
		return in.pull(f)
	case kindData:
		return nil // taken by data
	case kindDone:
		return in.done(f)
	case kindNotify:
		return in.deliver(f.id, f.body)
	case kindPing:
		in.port.send(frame{kind: kindPong})
		return nil
	case kindProbe:
		probe, err := in.t.host.OpenProbe(in.from.Name)
		if err != nil {
			in.port.send(resultFrame(f.id, err))
			return nil
		}
		in.port.send(frame{kind: kindProbeInfo, id: f.id, body: wire.EncodeProbe(probe)})
		return nil
	case kindProbeClose:
		var id nixl.TicketID
		if copy(id[:], f.body) != len(id) {
			return fmt.Errorf("ticket of %d bytes: %w", len(f.body), errProtocol)
		}
		in.t.host.CloseProbe(id)
		return nil
	case kindBye:
		return wire.Left(f.body)
	}
	return fmt.Errorf("message of kind %d from an initiator: %w", f.kind, errProtocol)
}

// access handles a request to touch memory: what the ticket allows is granted, and
// the peer gets the keys it needs.
func (in *inbound) access(f frame) error {
	ticket, descs, err := wire.ParseAccess(f.body)
	if err != nil {
		return err
	}
	switch limit := in.t.host.Limits().Descs; {
	case len(descs) > limit:
		return fmt.Errorf("access to %d pieces of memory, at most %d: %w", len(descs), limit, errProtocol)
	case in.accesses[f.id] != nil:
		return fmt.Errorf("access %d is open already: %w", f.id, errProtocol)
	case len(in.accesses) >= maxOpen:
		in.t.host.Refused(nixl.RefusedLimit)
		return fmt.Errorf("%d accesses are open: %w", len(in.accesses), errProtocol)
	}
	op, direct := nixl.Read, f.flags&flagDirect != 0
	if f.flags&flagWrite != 0 {
		op = nixl.Write
	}
	if direct && !in.t.direct {
		return fmt.Errorf("access by device, which was not offered: %w", errProtocol)
	}
	grant, err := in.t.host.Acquire(op, ticket, descs)
	if err != nil {
		in.port.send(resultFrame(f.id, err))
		return nil
	}
	var body []byte
	if direct {
		keys, err := in.handOver(grant.Descs())
		if err != nil {
			grant.Release(0)
			in.port.send(resultFrame(f.id, err))
			return nil
		}
		body = append(encodeElsewhere(descs, grant.Descs()), keys...)
	}
	total, _ := nixl.TotalBytes(descs)
	a := &access{grant: grant, op: op, total: total, direct: direct}
	in.accesses[f.id] = a
	in.port.send(frame{kind: kindGranted, id: f.id, body: body})
	// Called at once if the ticket was revoked meanwhile.
	grant.OnStop(func() {
		in.e.do(func() {
			if in.accesses[f.id] == a && !in.ended {
				in.revoke(f.id, a)
			}
		})
	})
	return nil
}

// revoke ends an access because its ticket was revoked. Messages are not looked at any
// more from now on; a device is ended by the initiator only, or with the connection.
func (in *inbound) revoke(id uint64, a *access) {
	in.port.send(frame{kind: kindStop, id: id})
	if !a.direct && a.sending.frames == 0 {
		a.release(a.moved)
	}
}

// data takes bytes of a write, if they may still be written.
func (in *inbound) data(f frame) {
	a, n := in.accesses[f.id], uint64(len(f.body))
	if a == nil || a.direct || a.op != nixl.Write || a.end != nil || f.offset > a.total || n > a.total-f.offset {
		in.t.host.Refused(nixl.RefusedMalformed)
		in.port.fail(fmt.Errorf("%d bytes at offset %d for access %d, which does not take them: %w", n, f.offset, f.id, errProtocol))
		return
	}
	if a.released || a.grant.Stopped() {
		return
	}
	b := f.body
	for _, seg := range nixl.SliceSegments(a.grant.Segments(), f.offset, n) {
		b = b[copy(seg, b):]
	}
	a.moved += n
}

// pull sends bytes of a read.
func (in *inbound) pull(f frame) error {
	a := in.accesses[f.id]
	if a == nil || a.direct || a.op != nixl.Read || a.end != nil || len(f.body) != 8 {
		return fmt.Errorf("pull for access %d, which does not allow it: %w", f.id, errProtocol)
	}
	n := binary.LittleEndian.Uint64(f.body)
	if n == 0 || n > pieceBytes || f.offset > a.total || n > a.total-f.offset || a.sending.bytes+n > 2*flying*pieceBytes {
		return fmt.Errorf("pull of %d bytes at offset %d of access %d: %w", n, f.offset, f.id, errProtocol)
	}
	if a.released || a.grant.Stopped() {
		return nil
	}
	a.sending.bytes += n
	a.sending.sent = func() {
		a.sending.bytes = 0
		if a.grant.Stopped() {
			a.release(a.moved)
		}
		if a.end != nil {
			if err := in.conclude(*a.end, a); err != nil {
				in.port.fail(err)
			}
		}
	}
	in.port.stream(f.id, f.offset, nixl.SliceSegments(a.grant.Segments(), f.offset, n), &a.sending)
	a.moved += n
	return nil
}

// handOver returns the keys of regions the peer has not got yet. The ticket keeps
// the regions registered.
func (in *inbound) handOver(descs []nixl.Desc) (keys []byte, err error) {
	var last *region
	var handed []uint64
	for _, d := range descs {
		if last != nil && last.base.Covers(d) {
			continue
		}
		if last = in.t.regions.covering(d); last == nil {
			for _, addr := range handed {
				delete(in.handed, addr)
			}
			return nil, fmt.Errorf("memory %s is not known to the devices: %w", d, nixl.ErrNotSupported)
		}
		if !in.handed[last.base.Addr] {
			in.handed[last.base.Addr] = true
			handed = append(handed, last.base.Addr)
			keys = appendRegion(keys, grantedRegion{base: last.base, addr: last.addr, key: last.mem.Key()})
		}
	}
	return keys, nil
}

// done handles the end of an access: nothing of it is on its way to this agent.
func (in *inbound) done(f frame) error {
	a := in.accesses[f.id]
	if a == nil || a.end != nil || len(f.body) < 8 {
		return fmt.Errorf("end of access %d, which is not open, with %d bytes: %w", f.id, len(f.body), errProtocol)
	}
	if a.sending.frames > 0 { // of a read that was given up, mostly
		a.end = &f
		return nil
	}
	return in.conclude(f, a)
}

// conclude releases the grant and answers.
func (in *inbound) conclude(f frame, a *access) error {
	delete(in.accesses, f.id)
	complete, moved := f.flags&flagComplete != 0, a.moved
	if a.direct {
		moved = binary.LittleEndian.Uint64(f.body)
	}
	var err error
	switch {
	case a.grant.Stopped():
		err = a.grant.StopCause()
	case complete && moved != a.total:
		err = fmt.Errorf("%d of %d bytes were moved: %w", moved, a.total, errProtocol)
	case !complete:
		err = fmt.Errorf("given up by the initiator: %w", nixl.ErrCanceled)
	}
	if err == nil && a.op == nixl.Write {
		err = a.grant.Commit() // a short copy, where host memory stands in for a device's
	}
	a.release(moved)
	switch {
	case errors.Is(err, errProtocol):
		return err
	case err != nil:
		in.port.send(resultFrame(f.id, err))
		return nil
	case f.flags&flagNotify != 0:
		return in.deliver(f.id, f.body[8:])
	}
	in.port.send(resultFrame(f.id, nil))
	return nil
}

// deliver hands a notification to the agent and answers when it is accepted.
func (in *inbound) deliver(id uint64, msg []byte) error {
	if len(msg) > in.t.host.Limits().NotifySize {
		return fmt.Errorf("notification of %d bytes: %w", len(msg), errProtocol)
	}
	if in.notes++; in.notes > 2*windowCount {
		return fmt.Errorf("more notifications than the window allows: %w", errProtocol)
	}
	in.t.host.Deliver(in.from.Name, msg, func(err error) {
		in.e.do(func() {
			in.notes--
			if !in.ended {
				in.port.send(resultFrame(id, err))
			}
		})
	})
	return nil
}

// forget tells the peer that a region is gone.
func (in *inbound) forget(base nixl.Desc) {
	if in.handed[base.Addr] && !in.ended {
		delete(in.handed, base.Addr)
		in.port.send(frame{kind: kindForget, body: wire.AppendDesc(nil, base)})
	}
}

func (in *inbound) step() bool {
	// Before the way back is there, UCX may be answering a peer that connects.
	if !in.deadline.IsZero() && in.port.ep != nil && in.port.flushed() {
		in.end(nil)
		return true
	}
	return false
}

func (in *inbound) tick(now time.Time) {
	silence := in.t.opts.SilenceTimeout
	switch {
	case !in.deadline.IsZero() && now.After(in.deadline):
		in.end(nil)
	case in.word != nil && now.After(in.wordBy):
		in.broken(wire.Left(in.word))
	case in.deadline.IsZero() && now.Sub(in.heard) > silence:
		in.broken(fmt.Errorf("peer is silent for %s: %w", silence, nixl.ErrRemoteDisconnect))
	}
}

func (in *inbound) broken(cause error) {
	if in.word != nil {
		cause = wire.Left(in.word)
	}
	if errors.Is(cause, wire.ErrOrderly) || !in.deadline.IsZero() {
		cause = nil
	}
	in.end(cause)
}

// parted waits a little for the messages that the initiator sent before it closed.
func (in *inbound) parted(word []byte) {
	in.word, in.wordBy = word, in.e.now.Add(flushTime)
	in.port.parted, in.port.hot = true, true
}

// bye ends the connection because this agent wants it to.
func (in *inbound) bye(why string) {
	in.farewell = why
	in.port.send(frame{kind: kindBye, body: []byte(why)})
	in.deadline = in.e.now.Add(flushTime)
}

// end closes this agent's end of the connection. That is what fences memory from a
// peer that has not confirmed its accesses: nothing it has sent, or goes on to send,
// arrives any more.
func (in *inbound) end(cause error) {
	if in.ended {
		return
	}
	in.ended = true
	leave(in.socket, in.farewell)
	in.port.close(len(in.accesses) > 0)
	if in.socket != nil {
		_ = in.socket.Close()
	}
	for _, a := range in.accesses {
		a.release(a.moved)
	}
	in.accesses = nil
	delete(in.t.inbound, in)
	in.t.host.InboundDown(Name, in.from, cause)
}
