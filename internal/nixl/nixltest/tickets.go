package nixltest

import (
	"bytes"
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/nixl"
)

func testRefusals(t *testing.T, e Env) {
	const size = 64 << 10
	p := newPair(t, e, 4*size)
	other := p.b
	lower := p.lb.Desc(0, size)
	write, read := Ticket(t, other, nixl.Write, lower), Ticket(t, other, nixl.Read, lower)
	revoked := Ticket(t, other, nixl.Write, lower)
	if err := other.RevokeTicket(Context(t), revoked); err != nil {
		t.Fatal(err)
	}
	var guessed nixl.TicketID
	rand.Read(guessed[:])
	for _, c := range []struct {
		name   string
		op     nixl.Op
		id     nixl.TicketID
		off, n uint64
		reason nixl.RefuseReason
	}{
		{"no ticket", nixl.Write, nixl.TicketID{}, 0, size, nixl.RefusedNoTicket},
		{"guessed ticket", nixl.Write, guessed, 0, size, nixl.RefusedUnknownTicket},
		{"revoked ticket", nixl.Write, revoked, 0, size, nixl.RefusedUnknownTicket},
		{"write with a read ticket", nixl.Write, read, 0, size, nixl.RefusedAccess},
		{"read with a write ticket", nixl.Read, write, 0, size, nixl.RefusedAccess},
		{"behind the ticket's memory", nixl.Write, write, size, size, nixl.RefusedBounds},
		{"one byte too long", nixl.Write, write, 0, size + 1, nixl.RefusedBounds},
		{"long write", nixl.Write, write, 0, 4 * size, nixl.RefusedBounds},
		{"no read ticket", nixl.Read, nixl.TicketID{}, 0, 4 * size, nixl.RefusedNoTicket},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := other.Stats().Refused[c.reason]
			p.b.Tickets() // see SameAt
			memory := bytes.Clone(p.mb)
			x := New(t, p.a, c.op, []nixl.Desc{p.la.Desc(0, c.n)}, []nixl.Desc{p.rb.Desc(c.off, c.n)}, "b",
				nixl.TransferOpts{Ticket: c.id, HasNotify: true})
			WantStatus(t, Do(t, x), nixl.ErrNotAllowed)
			if got := other.Stats().Refused[c.reason]; got <= before {
				t.Errorf("refusals for %s = %d, before %d", c.reason, got, before)
			}
			SameAt(t, p.b, p.mb, memory)
		})
	}
	NoMore(t, other)
	// The connection survives all of that.
	x := New(t, p.a, nixl.Write, []nixl.Desc{p.la.Desc(0, size)}, []nixl.Desc{p.rb.Desc(0, size)}, "b", nixl.TransferOpts{Ticket: write})
	WantStatus(t, Do(t, x), nixl.Success)
	SameAt(t, p.b, p.mb[:size], p.ma[:size])
}

func testExpiry(t *testing.T, e Env) {
	p := newPair(t, e, 4096)
	id, err := p.b.OpenTicket(nixl.TicketSpec{Access: nixl.Write, Descs: []nixl.Desc{p.lb.Desc(0, 4096)}, Deadline: time.Now().Add(50 * time.Millisecond)})
	if err != nil {
		t.Fatal(err)
	}
	Poll(t, "the ticket expires", func() bool { return p.b.Tickets() == 0 })
	WantStatus(t, Do(t, p.all(t, nixl.Write, nixl.TransferOpts{Ticket: id})), nixl.ErrNotAllowed)
	if err := p.b.RevokeTicket(Context(t), id); err != nil {
		t.Errorf("revoke an expired ticket: %v", err)
	}
	if n := p.b.Stats().TicketsExpired; n != 1 {
		t.Errorf("expired tickets = %d", n)
	}
}

// testRevokeWrite revokes while writes hammer the memory. Once RevokeTicket has
// returned, the memory belongs to the target: it is rewritten without any lock,
// which the race detector watches, and must keep its content.
func testRevokeWrite(t *testing.T, e Env) {
	const size = 3 << 20 / shrink
	p := newPair(t, e, size)
	var xs []*nixl.Transfer
	for round := range 15 {
		id := p.ticket(t, nixl.Write)
		xs = xs[:0]
		for i := range uint64(3) { // side by side: overlapping writes would be a race of their own
			x := New(t, p.a, nixl.Write, []nixl.Desc{p.la.Desc(i*size/3, size/3)}, []nixl.Desc{p.rb.Desc(i*size/3, size/3)}, "b",
				nixl.TransferOpts{Ticket: id, Notify: []byte("done")})
			x.Post()
			xs = append(xs, x)
		}
		if round%3 > 0 { // in the middle of a write, mostly
			Poll(t, "a write is running", func() bool {
				n, _ := p.b.InFlight()
				return n > 0 || xs[0].Status() != nixl.InProgress
			})
		}
		if err := p.b.RevokeTicket(Context(t), id); err != nil {
			t.Fatal(err)
		}
		Blank(p.mb, 0xEE)
		for _, x := range xs {
			WantStatus(t, End(t, x), nixl.ErrNotAllowed, nixl.Success)
		}
		WantBlank(t, p.mb, 0xEE)
		Drain(t, p.b)
	}
	if n := p.b.Tickets(); n != 0 {
		t.Errorf("%d tickets are left", n)
	}
}

// testRevokeRead checks that no peer reads memory after its ticket is revoked.
func testRevokeRead(t *testing.T, e Env) {
	const size = 3 << 20 / shrink
	p := newPair(t, e, size)
	for range 15 {
		id := p.ticket(t, nixl.Read)
		x := p.all(t, nixl.Read, nixl.TransferOpts{Ticket: id})
		x.Post()
		Poll(t, "the read is running", func() bool {
			n, _ := p.b.InFlight()
			return n > 0 || x.Status() != nixl.InProgress
		})
		if err := p.b.RevokeTicket(Context(t), id); err != nil {
			t.Fatal(err)
		}
		Fill(p.mb, 3) // a race if somebody still reads
		WantStatus(t, End(t, x), nixl.ErrNotAllowed, nixl.Success)
		Fill(p.ma, 4) // a race if the transport still writes
	}
}

func testRevokeRunning(t *testing.T, e Env) {
	const size = 16 << 20 / shrink
	p := newPair(t, e, size)
	id := p.ticket(t, nixl.Write)
	x := p.all(t, nixl.Write, nixl.TransferOpts{Ticket: id})
	for range 20 {
		x.Post()
		Poll(t, "the write is running", func() bool {
			n, _ := p.b.InFlight()
			return n > 0 || x.Status() != nixl.InProgress
		})
		if err := p.lb.Deregister(); nixl.StatusOf(err) != nixl.ErrNotAllowed {
			t.Fatalf("deregister under a ticket: %v", err)
		}
		err := p.b.RevokeTicket(Context(t), id)
		if err != nil {
			t.Fatal(err)
		}
		err = End(t, x)
		if err != nil {
			WantStatus(t, err, nixl.ErrNotAllowed)
			canceled, cancel := context.WithCancel(t.Context())
			cancel()
			if err := p.b.RevokeTicket(canceled, id); err != nil {
				t.Errorf("second revoke: %v", err)
			}
			if in, _ := p.b.InFlight(); in != 0 {
				t.Errorf("%d accesses after the revoke", in)
			}
			if err := p.lb.Deregister(); err != nil {
				t.Errorf("deregister: %v", err)
			}
			return
		}
		id = p.ticket(t, nixl.Write) // it was faster
		x = p.all(t, nixl.Write, nixl.TransferOpts{Ticket: id})
	}
	t.Fatal("no write was ever interrupted")
}
