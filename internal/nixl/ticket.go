package nixl

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"sync"
	"time"
)

// TicketID is the unguessable name of a ticket: a peer that knows it may use it. Its text
// form is 32 hexadecimal digits. The zero value is no ticket.
type TicketID [16]byte

// ParseTicketID reads the text form.
func ParseTicketID(s string) (TicketID, error) {
	var id TicketID
	if len(s) != hex.EncodedLen(len(id)) {
		return TicketID{}, fmt.Errorf("parse ticket: %d characters, want %d: %w", len(s), hex.EncodedLen(len(id)), ErrInvalidParam)
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return TicketID{}, fmt.Errorf("parse ticket: not hexadecimal: %w", ErrInvalidParam)
	}
	return id, nil
}

// String returns the text form.
func (id TicketID) String() string { return hex.EncodeToString(id[:]) }

// IsZero reports whether id is no ticket.
func (id TicketID) IsZero() bool { return id == TicketID{} }

// short returns the part of a ticket that logs may show: enough to find it, not enough to use it.
func (id TicketID) short() string { return hex.EncodeToString(id[:4]) }

// TicketSpec says what a ticket allows.
type TicketSpec struct {
	Access   Op        // Read: peers may read from Descs; Write: they may write into them
	Descs    []Desc    // memory of this agent; adjacent pieces count as one
	Deadline time.Time // the ticket revokes itself then; zero means never
	Tag      string    // for logs, such as the request id
}

// tickets is the table of open tickets and the accesses under them.
//
// Lock order: tickets.mu before regions.mu; Grant hooks run without any lock.
type tickets struct {
	regions *regions
	staging *staging
	limits  Limits
	stats   *counters

	mu     sync.Mutex
	open   map[TicketID]*ticket
	grants int
	closed bool
}

type ticket struct {
	id     TicketID
	tag    string
	allows [2]bool  // by Op
	pieces []Desc   // sorted and merged
	mem    [][]byte // nil for memory of a device
	unuse  func()   // lets go of the regions
	timer  *time.Timer

	// guarded by tickets.mu
	revoked bool
	expired bool
	grants  map[*Grant]struct{}
	idle    chan struct{} // closed when revoked and the last grant is released
}

func (ts *tickets) openTicket(spec TicketSpec, both bool) (TicketID, error) {
	if spec.Access > Write {
		return TicketID{}, fmt.Errorf("open ticket %q: %s: %w", spec.Tag, spec.Access, ErrInvalidParam)
	}
	if len(spec.Descs) == 0 || len(spec.Descs) > ts.limits.Descs {
		return TicketID{}, fmt.Errorf("open ticket %q: %d descriptors, want 1 to %d: %w", spec.Tag, len(spec.Descs), ts.limits.Descs, ErrInvalidParam)
	}
	if err := ts.regions.check(spec.Descs); err != nil {
		return TicketID{}, fmt.Errorf("open ticket %q: %w", spec.Tag, err)
	}
	tk := &ticket{tag: spec.Tag, pieces: mergeSorted(spec.Descs), grants: map[*Grant]struct{}{}, idle: make(chan struct{})}
	tk.allows[spec.Access] = true
	if both {
		tk.allows = [2]bool{true, true}
	}
	var left time.Duration
	if !spec.Deadline.IsZero() {
		if left = time.Until(spec.Deadline); left <= 0 {
			return TicketID{}, fmt.Errorf("open ticket %q: deadline has passed: %w", spec.Tag, ErrInvalidParam)
		}
	}
	rand.Read(tk.id[:]) // never fails

	ts.mu.Lock()
	defer ts.mu.Unlock()
	switch {
	case ts.closed:
		return TicketID{}, fmt.Errorf("open ticket %q: agent is closed: %w", spec.Tag, ErrNotAllowed)
	case len(ts.open) >= ts.limits.Tickets:
		return TicketID{}, fmt.Errorf("open ticket %q: %d tickets are open: %w", spec.Tag, len(ts.open), ErrBackend)
	}
	var err error
	if tk.mem, tk.unuse, err = ts.regions.use(tk.pieces); err != nil {
		return TicketID{}, fmt.Errorf("open ticket %q: %w", spec.Tag, err)
	}
	ts.open[tk.id] = tk
	if left > 0 {
		tk.timer = time.AfterFunc(left, func() { ts.stop(tk, true) })
	}
	return tk.id, nil
}

// errClosing is sent to peers of a closing agent.
var errClosing = fmt.Errorf("agent closes: %w", ErrRemoteDisconnect)

// acquire checks an access and returns the memory. What is read of a device is in
// host memory when it returns.
func (ts *tickets) acquire(op Op, id TicketID, descs []Desc, t Transport) (*Grant, error) {
	g, err := ts.grant(op, id, descs, t)
	if err != nil || g.stage == nil || op == Write {
		return g, err
	}
	if err := g.stage.load(); err != nil {
		g.Release(0)
		return nil, fmt.Errorf("%s failed: %w", op, err)
	}
	return g, nil
}

func (ts *tickets) grant(op Op, id TicketID, descs []Desc, t Transport) (*Grant, error) {
	refuse := func(r RefuseReason, format string, args ...any) (*Grant, error) {
		ts.stats.refuse(r)
		return nil, fmt.Errorf("%s refused: %s: %w", op, fmt.Sprintf(format, args...), ErrNotAllowed)
	}
	switch {
	case op > Write || len(descs) == 0 || len(descs) > ts.limits.Descs:
		return refuse(RefusedMalformed, "%d descriptors", len(descs))
	case id.IsZero():
		return refuse(RefusedNoTicket, "no ticket")
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.closed {
		return nil, errClosing
	}
	tk := ts.open[id]
	switch {
	case tk == nil:
		return refuse(RefusedUnknownTicket, "ticket %s is not open", id.short())
	case tk.revoked:
		return refuse(RefusedRevoked, "ticket %s was revoked", id.short())
	case !tk.allows[op]:
		return refuse(RefusedAccess, "ticket %s does not allow it", id.short())
	}
	g := &Grant{table: ts, ticket: tk, op: op, segs: make([][]byte, 0, len(descs)), descs: descs}
	device := false
	for j, d := range descs {
		i := coveringPiece(tk.pieces, d)
		if i < 0 {
			return refuse(RefusedBounds, "descriptor %s is outside of ticket %s", d, id.short())
		}
		if tk.mem[i] == nil {
			device = device || !ts.regions.direct(descs[j:j+1], t)
			g.segs = append(g.segs, nil)
			continue
		}
		off := d.Addr - tk.pieces[i].Addr
		g.segs = append(g.segs, tk.mem[i][off:off+d.Len:off+d.Len])
	}
	if device {
		if err := ts.stage(g); err != nil {
			ts.stats.refuse(RefusedLimit)
			return nil, fmt.Errorf("%s refused: %w", op, err)
		}
	}
	tk.grants[g] = struct{}{}
	ts.grants++
	return g, nil
}

// stage puts host memory in the place of memory of devices. It does not wait: the
// transport that asks may be the one that gives slots back.
func (ts *tickets) stage(g *Grant) error {
	select {
	case slot := <-ts.staging.slots():
		st, where, err := ts.staging.place(slot, g.descs, g.segs)
		if err != nil {
			ts.staging.free <- slot
			return err
		}
		g.stage, g.descs = st, where
		return nil
	default:
		return errNoSlots
	}
}

// stop makes the ticket refuse and asks its accesses to end.
func (ts *tickets) stop(tk *ticket, expired bool) {
	ts.mu.Lock()
	if tk.revoked {
		ts.mu.Unlock()
		return
	}
	tk.revoked, tk.expired = true, expired
	running := make([]*Grant, 0, len(tk.grants))
	for g := range tk.grants {
		running = append(running, g)
	}
	if len(running) == 0 {
		ts.dropLocked(tk)
	}
	ts.mu.Unlock()
	if tk.timer != nil {
		tk.timer.Stop()
	}
	if expired {
		ts.stats.ticketsExpired.Add(1)
	}
	for _, g := range running {
		g.stop()
	}
}

func (ts *tickets) dropLocked(tk *ticket) {
	delete(ts.open, tk.id)
	tk.unuse()
	close(tk.idle)
}

func (ts *tickets) isOpen(id TicketID) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.open[id] != nil
}

// exposed says whether any of descs overlaps a piece of a ticket for op that is in the
// table: it leaves that when it is revoked and its last access has ended.
func (ts *tickets) exposed(op Op, descs []Desc) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, tk := range ts.open {
		if op > Write || !tk.allows[op] {
			continue
		}
		for _, d := range descs {
			for _, p := range tk.pieces {
				if p.DevID == d.DevID && p.Addr < d.End() && d.Addr < p.End() {
					return true
				}
			}
		}
	}
	return false
}

// stopID revokes without waiting.
func (ts *tickets) stopID(id TicketID) {
	ts.mu.Lock()
	tk := ts.open[id]
	ts.mu.Unlock()
	if tk != nil {
		ts.stop(tk, false)
	}
}

// revoke stops the ticket and waits until no access under it runs.
func (ts *tickets) revoke(ctx context.Context, id TicketID) error {
	ts.mu.Lock()
	tk := ts.open[id]
	ts.mu.Unlock()
	if tk == nil {
		return nil // never opened, or revoked and idle already
	}
	ts.stop(tk, false)
	select {
	case <-tk.idle:
		return nil
	default:
	}
	select {
	case <-tk.idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("revoke ticket %s %q: an access has not ended: %w", id.short(), tk.tag, context.Cause(ctx))
	}
}

// close revokes everything and waits. The transports end their accesses when
// asked; only a peer of this machine whose process is stopped keeps one, and its
// ticket stays unrevoked.
func (ts *tickets) close() error {
	ts.mu.Lock()
	ts.closed = true
	all := make([]*ticket, 0, len(ts.open))
	for _, tk := range ts.open {
		all = append(all, tk)
	}
	ts.mu.Unlock()
	for _, tk := range all {
		ts.stop(tk, false)
	}
	grace := time.NewTimer(CloseGrace)
	defer grace.Stop()
	for i, tk := range all {
		select {
		case <-tk.idle:
		case <-grace.C:
			return fmt.Errorf("close agent: %d tickets, %s %q among them: an access has not ended: %w", len(all)-i, tk.id.short(), tk.tag, ErrBackend)
		}
	}
	return nil
}

func (ts *tickets) count() (open, grants int) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return len(ts.open), ts.grants
}

// Grant is a running access of a peer to memory of this agent under a ticket.
// The transport that acquired it moves the bytes and must stop touching the
// memory when it is told to.
type Grant struct {
	table  *tickets
	ticket *ticket
	op     Op
	segs   [][]byte
	descs  []Desc  // of segs
	stage  *staged // nil without memory of a device

	mu       sync.Mutex
	stopped  bool
	released bool
	hook     func()
}

// Segments is the memory, one piece per descriptor; nil for memory of a device that the
// transport reaches itself.
func (g *Grant) Segments() [][]byte { return g.segs }

// Descs names the memory of Segments, for [Host.Share]: what was asked for, or the host
// memory that stands in for that of a device. It must not be changed.
func (g *Grant) Descs() []Desc { return g.descs }

// Commit makes bytes that were written into Segments count: those for a device are
// copied there. A transport calls it for a complete write, before it tells the peer and
// before Release, at a time when the memory may be touched. The error is for the peer.
func (g *Grant) Commit() error {
	switch {
	case g.Stopped():
		return g.StopCause()
	case g.stage == nil:
		return nil
	}
	return g.stage.store()
}

// Stopped reports whether the ticket was revoked: the memory must not be touched
// any more, and the grant released.
func (g *Grant) Stopped() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stopped
}

// StopCause says why the grant was stopped, as an error for the peer.
func (g *Grant) StopCause() error {
	g.table.mu.Lock()
	closed, word := g.table.closed, "revoked"
	if g.ticket.expired {
		word = "expired"
	}
	g.table.mu.Unlock()
	if closed {
		return errClosing
	}
	return fmt.Errorf("ticket %s %s during the %s: %w", g.ticket.id.short(), word, g.op, ErrNotAllowed)
}

// OnStop sets the function that is called, once, when the ticket is revoked; at
// once if it was already. It must not block: it interrupts what the transport does.
func (g *Grant) OnStop(f func()) {
	g.mu.Lock()
	if !g.stopped {
		g.hook = f
		g.mu.Unlock()
		return
	}
	g.mu.Unlock()
	f()
}

func (g *Grant) stop() {
	g.mu.Lock()
	f := g.hook
	g.stopped, g.hook = true, nil
	g.mu.Unlock()
	if f != nil {
		f()
	}
}

// Release ends the access after moved bytes. The memory must not be touched
// after the call. Releasing twice is not an error.
func (g *Grant) Release(moved uint64) {
	g.mu.Lock()
	if g.released {
		g.mu.Unlock()
		return
	}
	g.released, g.hook = true, nil
	g.mu.Unlock()
	g.table.stats.accessed(g.op, moved)
	if g.stage != nil {
		g.stage.release()
	}

	g.table.mu.Lock()
	defer g.table.mu.Unlock()
	delete(g.ticket.grants, g)
	g.table.grants--
	if g.ticket.revoked && len(g.ticket.grants) == 0 {
		g.table.dropLocked(g.ticket)
	}
}
