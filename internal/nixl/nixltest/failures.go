package nixltest

import (
	"bytes"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/nixl"
)

// testRelease cancels transfers in the middle; local memory is quiet afterwards,
// which the race detector watches.
func testRelease(t *testing.T, e Env) {
	const size = 3 << 20 / shrink
	p := newPair(t, e, size)
	for _, op := range []nixl.Op{nixl.Write, nixl.Read} {
		id := p.ticket(t, op)
		for i := range 12 {
			x := p.all(t, op, nixl.TransferOpts{Ticket: id, HasNotify: true})
			x.Post()
			if i%2 > 0 {
				Poll(t, "the transfer is running", func() bool {
					n, _ := p.b.InFlight()
					return n > 0 || x.Status() != nixl.InProgress
				})
			}
			x.Release()
			err := End(t, x)
			WantStatus(t, err, nixl.ErrCanceled, nixl.Success)
			Fill(p.ma, uint64(i))
		}
	}
	// All of it is forgotten, and the connection still works.
	Poll(t, "accesses end", func() bool { n, _ := p.b.InFlight(); return n == 0 })
	Drain(t, p.b) // a transfer may have been canceled just before its end
	x := p.all(t, nixl.Write, nixl.TransferOpts{Ticket: p.ticket(t, nixl.Write), Notify: []byte("ok")})
	WantStatus(t, Do(t, x), nixl.Success)
	if n := Next(t, p.b); string(n.Msg) != "ok" {
		t.Errorf("notification = %q", n.Msg)
	}
	SameAt(t, p.b, p.mb, p.ma)
}

func testDeadline(t *testing.T, e Env) {
	p := newPair(t, e, 4096, func(c *nixl.Config) { c.Limits.NotifyBytes = 1 })
	if err := p.a.Notify(t.Context(), "b", nil); err != nil {
		t.Fatal(err)
	}
	id := p.ticket(t, nixl.Write)
	// The receiver takes no second notification: the transfer cannot end by itself.
	x := p.all(t, nixl.Write, nixl.TransferOpts{Ticket: id, HasNotify: true, Deadline: time.Now().Add(50 * time.Millisecond)})
	WantStatus(t, Do(t, x), nixl.ErrCanceled)
	if st := x.Post(); st != nixl.ErrCanceled {
		t.Errorf("post after the deadline = %s", st)
	}
}

func testInvalidate(t *testing.T, e Env) {
	p := newPair(t, e, 12<<20/shrink)
	id := p.ticket(t, nixl.Write)
	x := p.all(t, nixl.Write, nixl.TransferOpts{Ticket: id})
	if !p.a.Known("b", p.b.Incarnation()) || p.a.Known("b", "other") || p.a.Known("c", "") {
		t.Error("Known() is wrong")
	}
	x.Post()
	if err := p.a.Invalidate("b"); err != nil {
		t.Fatal(err)
	}
	WantStatus(t, End(t, x), nixl.ErrNotFound, nixl.Success)
	if st := x.Post(); st != nixl.ErrNotFound {
		t.Errorf("post to an invalidated peer = %s", st)
	}
	if p.a.Known("b", "") {
		t.Error("b is still known")
	}
	if err := p.a.Invalidate("b"); nixl.StatusOf(err) != nixl.ErrNotFound {
		t.Errorf("second Invalidate: %v", err)
	}
	Load(t, p.a, p.b)
	if st := x.Post(); st != nixl.ErrNotFound {
		t.Errorf("post of an outdated transfer = %s", st)
	}
	WantStatus(t, Do(t, p.all(t, nixl.Write, nixl.TransferOpts{Ticket: id})), nixl.Success)
	Load(t, p.a, p.b) // the same again changes nothing
	SameAt(t, p.b, p.mb, p.ma)
}

// testRest closes a connection that nobody uses: both sides go on as if it were open.
func testRest(t *testing.T, e Env) {
	p := newPair(t, e, 1<<20/shrink)
	id := p.ticket(t, nixl.Write)
	x := p.all(t, nixl.Write, nixl.TransferOpts{Ticket: id})
	if err := p.a.Rest("b"); err != nil { // it was never used
		t.Fatal(err)
	}
	if st := x.Post(); st != nixl.ErrNotFound {
		t.Errorf("post of a transfer that was made before = %s", st)
	}
	inbound := func() (n int) {
		for _, i := range p.b.Peers() {
			n += i.Inbound
		}
		return n
	}
	before := p.a.Peers()[0]
	for range 3 {
		clear(p.mb)
		WantStatus(t, Do(t, p.all(t, nixl.Write, nixl.TransferOpts{Ticket: id})), nixl.Success)
		SameAt(t, p.b, p.mb, p.ma)
		if n := inbound(); n != 1 {
			t.Errorf("%d connections in use", n)
		}
		if err := p.a.Rest("b"); err != nil {
			t.Fatal(err)
		}
		Poll(t, "the connection ends", func() bool { return inbound() == 0 })
		now := p.a.Peers()[0]
		if !p.a.Known("b", p.b.Incarnation()) || now.State != nixl.PeerLoaded || now.Transport != before.Transport || !now.Since.Equal(before.Since) {
			t.Errorf("the peer has changed: %+v, before %+v", now, before)
		}
	}
	if err := p.a.Notify(Context(t), "b", []byte("again")); err != nil {
		t.Error(err)
	}
	if err := p.a.Rest("c"); nixl.StatusOf(err) != nixl.ErrNotFound {
		t.Errorf("rest of an unknown peer: %v", err)
	}
	// The first loss that b hears of is that of somebody else.
	c := e.Agent(t, "c")
	Load(t, c, p.b)
	if err := c.Notify(Context(t), "b", nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Invalidate("b"); err != nil {
		t.Fatal(err)
	}
	select {
	case d := <-p.b.PeerDowns():
		if d.Peer != "c" || !d.Inbound || d.Cause != nil {
			t.Errorf("event = %+v", d)
		}
	case <-time.After(limit):
		t.Fatal("no event")
	}
	if n := p.a.Stats().PeerDowns + p.b.Stats().PeerDowns; n != 0 {
		t.Errorf("%d broken connections are counted", n)
	}
}

func testPeerCloses(t *testing.T, e Env) {
	p := newPair(t, e, 12<<20/shrink)
	id := p.ticket(t, nixl.Write)
	x := p.all(t, nixl.Write, nixl.TransferOpts{Ticket: id})
	WantStatus(t, Do(t, x), nixl.Success)
	if ps := p.b.Peers(); len(ps) != 1 || ps[0].Name != "a" || ps[0].State != nixl.PeerInbound {
		t.Errorf("peers of the target = %+v", ps)
	}
	x.Post()
	start := time.Now()
	if err := p.b.Close(); err != nil {
		t.Fatal(err)
	}
	WantStatus(t, End(t, x), nixl.ErrRemoteDisconnect, nixl.Success)
	if took := time.Since(start); took > 4*time.Second { // silence would tell after five
		t.Errorf("noticed after %s", took)
	}
	Poll(t, "the peer counts as failed", func() bool { return !p.a.Known("b", "") })
	if st := x.Post(); st != nixl.ErrNotFound {
		t.Errorf("post to a closed peer = %s", st)
	}
	select {
	case d := <-p.a.PeerDowns():
		if d.Peer != "b" || d.Inbound || d.Cause == nil || d.Incarnation != p.b.Incarnation() {
			t.Errorf("event = %+v", d)
		}
	case <-time.After(limit):
		t.Fatal("no event")
	}
	ps := p.a.Peers()
	if len(ps) != 1 || ps[0].State != nixl.PeerFailed || ps[0].Reason == "" {
		t.Errorf("peers = %+v", ps)
	}
}

func testRestart(t *testing.T, e Env) {
	const size = 1 << 20 / shrink
	p := newPair(t, e, size)
	id := p.ticket(t, nixl.Write)
	x := p.all(t, nixl.Write, nixl.TransferOpts{Ticket: id})
	WantStatus(t, Do(t, x), nixl.Success)
	oldBlob := p.b.Metadata()
	oldDesc := p.rb.Base
	_ = p.b.Close()

	b := e.Agent(t, "b")
	lb, mb := e.Region(t, b, size)
	Load(t, p.a, b) // before or after the failure was noticed
	if !p.a.Known("b", b.Incarnation()) {
		t.Fatal("the new incarnation is not known")
	}
	if st := x.Post(); st != nixl.ErrNotFound {
		t.Errorf("post of a transfer of the old incarnation = %s", st)
	}
	if _, err := p.a.NewTransfer(nixl.Write, []nixl.Desc{p.la.Desc(0, size)}, []nixl.Desc{oldDesc}, "b", nixl.TransferOpts{Ticket: id}); nixl.StatusOf(err) != nixl.ErrNotFound {
		t.Errorf("descriptor of the old incarnation: %v", err)
	}
	fresh := New(t, p.a, nixl.Write, []nixl.Desc{p.la.Desc(0, size)}, []nixl.Desc{lb.Desc(0, size)}, "b",
		nixl.TransferOpts{Ticket: Ticket(t, b, nixl.Write, lb.Desc(0, size))})
	WantStatus(t, Do(t, fresh), nixl.Success)
	SameAt(t, b, mb, p.ma)

	// An outdated blob, as a slow reader of the metadata store may have it.
	c := e.Agent(t, "c")
	if _, err := c.LoadRemote(oldBlob); err == nil {
		err := c.Notify(Context(t), "b", nil)
		WantStatus(t, err, nixl.ErrRemoteDisconnect)
		NoMore(t, b)
	}
}

func testDeregister(t *testing.T, e Env) {
	p := newPair(t, e, 4096)
	arena, err := nixl.NewArena(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.a.Register(arena, nixl.DRAM)
	if err != nil {
		t.Fatal(err)
	}
	x := New(t, p.a, nixl.Write, []nixl.Desc{r.Desc(0, 4096)}, []nixl.Desc{p.rb.Base}, "b", nixl.TransferOpts{Ticket: p.ticket(t, nixl.Write)})
	copy(arena.Bytes(), bytes.Repeat([]byte{5}, 4096))
	WantStatus(t, Do(t, x), nixl.Success)
	SameAt(t, p.b, p.mb, bytes.Repeat([]byte{5}, 4096))
	if err := arena.Close(); nixl.StatusOf(err) != nixl.ErrNotAllowed {
		t.Errorf("close a registered arena: %v", err)
	}
	if err := r.Deregister(); err != nil {
		t.Fatal(err)
	}
	if st := x.Post(); st != nixl.ErrNotFound {
		t.Errorf("post with deregistered memory = %s", st)
	}
	if err := arena.Close(); err != nil {
		t.Error(err)
	}
	if err := p.lb.Deregister(); nixl.StatusOf(err) != nixl.ErrNotAllowed {
		t.Errorf("deregister under a ticket: %v", err)
	}
}
