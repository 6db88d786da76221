//go:build linux

package fenced

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/wire"
)

// inbound is the target's side of a connection of a peer.
type inbound struct {
	t       *transport
	c       *conn
	from    nixl.Identity
	peer    process
	fences  *fences
	fenceFD int

	mu       sync.Mutex
	accesses map[uint64]*access
	free     []uint32 // fences nobody uses
	opened   []uint32 // generations so far, by fence
	handed   map[uint64]bool
	lent     map[uint64]func() // told when the peer has given a region back, by its address
	notes    int               // notifications not accepted by the agent yet
}

// access is one access of a peer to memory of this agent under one grant. It stays
// until the peer has said that it is done.
type access struct {
	id       uint64
	slot     uint32
	fence    *fence
	grant    *nixl.Grant
	total    uint64
	write    bool
	released bool // the grant; the fence is not looked at any more
}

func newInbound(t *transport, c *conn, from nixl.Identity, peer process) (*inbound, error) {
	fs, fd, err := newFences(maxOpen)
	if err != nil {
		return nil, err
	}
	in := &inbound{
		t: t, c: c, from: from, peer: peer, fences: fs, fenceFD: fd,
		accesses: map[uint64]*access{}, opened: make([]uint32, fs.len()), handed: map[uint64]bool{}, lent: map[uint64]func(){},
	}
	for i := range fs.len() {
		in.free = append(in.free, uint32(i))
	}
	return in, nil
}

// close frees what newInbound made.
func (in *inbound) close() {
	_ = in.fences.close()
	in.peer.close()
}

// serve handles what the initiator sends until the connection ends and until it is
// certain that the initiator touches nothing any more.
func (in *inbound) serve() {
	fd, err := unix.FcntlInt(uintptr(in.fenceFD), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		in.t.host.Log().Error("nixl fences not handed over", "transport", in.t.Name(), "peer", in.from.Name, "error", err)
		return
	}
	w := welcome{silence: in.c.silence, fences: uint32(in.fences.len()), window: windowCount}
	in.c.send(frame{header: header{kind: kindWelcome}, body: w.encode(), fd: fd})
	in.t.host.InboundUp(in.t.Name(), in.from)
	l := in.t.host.Limits()
	cause := in.c.run(in.frame, func(k kind) int {
		switch k {
		case kindAccess:
			return len(nixl.TicketID{}) + wire.DescBytes*l.Descs
		case kindDone, kindNotify:
			return l.NotifySize
		case kindProbeClose:
			return len(nixl.TicketID{})
		case kindForgot:
			return wire.DescBytes
		case kindBye:
			return wire.MaxText
		}
		return 0
	})
	if errors.Is(cause, wire.ErrOrderly) || errors.Is(cause, errFlushed) {
		cause = nil
	}
	quiet := in.end()
	in.t.host.InboundDown(in.t.Name(), in.from, cause)
	if !quiet {
		in.drain()
	}
}

func (in *inbound) frame(h header, body []byte) error {
	err := in.handle(h, body)
	if errors.Is(err, errProtocol) {
		in.t.host.Refused(nixl.RefusedMalformed)
	}
	return err
}

func (in *inbound) handle(h header, body []byte) error {
	switch h.kind {
	case kindAccess:
		return in.access(h, body)
	case kindDone:
		return in.done(h, body)
	case kindNotify:
		return in.deliver(h.id, body)
	case kindPing:
		in.c.send(frame{header: header{kind: kindPong}})
		return nil
	case kindProbe:
		probe, err := in.t.host.OpenProbe(in.from.Name)
		if err != nil {
			in.c.send(resultFrame(h.id, err))
			return nil
		}
		in.c.send(frame{header: header{kind: kindProbeInfo, id: h.id}, body: wire.EncodeProbe(probe)})
		return nil
	case kindProbeClose:
		var id nixl.TicketID
		copy(id[:], body)
		in.t.host.CloseProbe(id)
		return nil
	case kindForgot:
		return in.forgot(body)
	case kindBye:
		return wire.Left(body)
	}
	return fmt.Errorf("frame of kind %d from an initiator: %w", h.kind, errProtocol)
}

// access handles a request to touch memory.
func (in *inbound) access(h header, body []byte) error {
	a, err := in.open(h, body)
	if a != nil {
		a.grant.OnStop(func() { in.revoke(a) })
	}
	return err
}

// open checks a request and answers it. What is granted gets a fence, and the peer
// the memory behind it. It returns nil for what is refused.
func (in *inbound) open(h header, body []byte) (*access, error) {
	ticket, descs, err := wire.ParseAccess(body)
	if err != nil {
		return nil, err
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case in.accesses[h.id] != nil:
		return nil, fmt.Errorf("access %d is open already: %w", h.id, errProtocol)
	case len(in.free) == 0:
		in.t.host.Refused(nixl.RefusedLimit)
		return nil, fmt.Errorf("%d accesses are open: %w", len(in.accesses), errProtocol)
	}
	op := nixl.Read
	if h.flags&flagWrite != 0 {
		op = nixl.Write
	}
	grant, err := in.t.host.Acquire(op, ticket, descs)
	if err != nil {
		in.c.send(resultFrame(h.id, err))
		return nil, nil
	}
	frames, err := in.handOver(grant.Descs())
	if err != nil {
		grant.Release(0)
		in.c.send(resultFrame(h.id, err))
		return nil, nil
	}
	total, _ := nixl.TotalBytes(descs)
	slot := in.free[len(in.free)-1]
	in.free = in.free[:len(in.free)-1]
	in.opened[slot]++
	a := &access{id: h.id, slot: slot, fence: in.fences.at(int(slot)), grant: grant, total: total, write: op == nixl.Write}
	in.accesses[h.id] = a
	a.fence.open(in.opened[slot])
	body = permit{slot, in.opened[slot]}.encode()
	if where := grant.Descs(); !slices.Equal(where, descs) { // elsewhere: what stands in for memory of a device
		for _, d := range where {
			body = wire.AppendDesc(body, d)
		}
	}
	in.c.send(append(frames, frame{header: header{kind: kindGranted, id: h.id}, body: body})...)
	return a, nil
}

// handOver returns frames that bring the peer the regions it has not got yet.
func (in *inbound) handOver(descs []nixl.Desc) (frames []frame, err error) {
	var last nixl.Share
	for _, d := range descs {
		if last.Base.Covers(d) {
			continue
		}
		if last, err = in.t.host.Share(d); err != nil {
			break
		}
		if in.handed[last.Base.Addr] {
			continue
		}
		var h Handed
		if h, err = in.t.method.Hand(last); err != nil {
			break
		}
		if h.FD > 0 {
			if h.FD, err = unix.FcntlInt(uintptr(h.FD), unix.F_DUPFD_CLOEXEC, 3); err != nil {
				err = fmt.Errorf("hand over memory: %w: %w", err, nixl.ErrBackend)
				break
			}
		}
		in.handed[last.Base.Addr] = true
		if h.Returned != nil {
			in.lent[last.Base.Addr] = h.Returned
		}
		frames = append(frames, frame{header: header{kind: kindRegion}, body: encodeRegion(last.Base, last.Addr, h.Note), fd: h.FD})
	}
	if err != nil {
		for _, f := range frames {
			f.closeFD()
			addr := wire.ParseDesc(f.body).Addr
			delete(in.handed, addr)
			in.returned(addr)
		}
		return nil, err
	}
	return frames, nil
}

// revoke shuts the fence because the ticket was revoked. If the peer is inside, its
// done frame or the end of its process releases the grant.
func (in *inbound) revoke(a *access) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !a.released && a.fence.shut() {
		a.release()
	}
}

// release gives the grant back; no access is inside the fence.
func (a *access) release() {
	a.released = true
	a.grant.Release(min(a.fence.moved.Load(), a.total))
}

// done handles the end of an access: the peer is not inside the fence any more.
func (in *inbound) done(h header, body []byte) error {
	err := in.finish(h)
	switch {
	case errors.Is(err, errProtocol):
		return err
	case err != nil:
		in.c.send(resultFrame(h.id, err))
		return nil
	case h.flags&flagNotify != 0:
		return in.deliver(h.id, body)
	}
	in.c.send(resultFrame(h.id, nil))
	return nil
}

// finish ends an access and returns why it does not count.
func (in *inbound) finish(h header) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	a := in.accesses[h.id]
	if a == nil {
		return fmt.Errorf("end of access %d, which is not open: %w", h.id, errProtocol)
	}
	if !a.fence.shut() {
		return fmt.Errorf("end of access %d, whose fence is held: %w", h.id, errProtocol)
	}
	var err error
	switch {
	case a.grant.Stopped():
		err = a.grant.StopCause()
	case h.flags&flagComplete == 0:
		err = fmt.Errorf("given up by the initiator: %w", nixl.ErrCanceled)
	}
	if err == nil && a.write {
		err = a.grant.Commit()
	}
	if !a.released {
		a.release()
	}
	delete(in.accesses, h.id)
	in.free = append(in.free, a.slot)
	return err
}

// deliver hands a notification to the agent and answers when it is accepted.
func (in *inbound) deliver(id uint64, msg []byte) error {
	in.mu.Lock()
	in.notes++
	many := in.notes > 2*windowCount
	in.mu.Unlock()
	if many {
		return fmt.Errorf("more notifications than the window allows: %w", errProtocol)
	}
	in.t.host.Deliver(in.from.Name, msg, func(err error) {
		in.mu.Lock()
		in.notes--
		in.mu.Unlock()
		in.c.send(resultFrame(id, err))
	})
	return nil
}

// returned says that the peer does not have a region any more.
func (in *inbound) returned(addr uint64) {
	if f := in.lent[addr]; f != nil {
		delete(in.lent, addr)
		f()
	}
}

// forgot handles the peer's word that it has closed a region it was told to forget.
func (in *inbound) forgot(body []byte) error {
	if len(body) != wire.DescBytes {
		return fmt.Errorf("region given back in %d bytes: %w", len(body), errProtocol)
	}
	addr := wire.ParseDesc(body).Addr
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.handed[addr] {
		return fmt.Errorf("region at %#x given back unasked: %w", addr, errProtocol)
	}
	in.returned(addr)
	return nil
}

// forget tells the peer that a region is gone.
func (in *inbound) forget(base nixl.Desc) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.handed[base.Addr] {
		delete(in.handed, base.Addr)
		in.c.send(frame{header: header{kind: kindForget}, body: wire.AppendDesc(nil, base)})
	}
}
