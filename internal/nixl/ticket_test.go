package nixl

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"
)

// bytesOf is memory of the Go heap.
type bytesOf []byte

func (b bytesOf) Bytes() []byte { return b }

// ticketed is an agent without transports and a ticket for the middle of its memory.
func ticketed(t *testing.T) (a *Agent, whole, middle Desc, id TicketID) {
	t.Helper()
	a, err := NewAgent(Config{Name: "a", Transports: []Transport{&unreachable{}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	r, err := a.Register(make(bytesOf, 3*4096), DRAM)
	if err != nil {
		t.Fatal(err)
	}
	whole, middle = r.Desc(0, r.Len()), r.Desc(4096, 4096)
	if id, err = a.OpenTicket(TicketSpec{Access: Write, Descs: []Desc{middle}, Tag: "test"}); err != nil {
		t.Fatal(err)
	}
	return a, whole, middle, id
}

// unreachable is a transport without peers.
type unreachable struct{ Transport }

func (*unreachable) Name() string                 { return "none" }
func (*unreachable) Start(h Host) ([]byte, error) { return nil, nil }
func (*unreachable) Close() error                 { return nil }

// A ticket under which somebody still accesses memory is not revoked, whatever becomes of
// the context: its owner must not use the memory again.
func TestRevokeTellsWhenItFailed(t *testing.T) {
	a, _, middle, id := ticketed(t)
	g, err := a.tickets.acquire(Write, id, []Desc{middle}, nil)
	if err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancelCause(t.Context())
	hurry := errors.New("in a hurry")
	cancel(hurry)
	short, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()
	for _, tc := range []struct {
		ctx  context.Context
		want error
	}{{over, hurry}, {short, context.DeadlineExceeded}} {
		if err := a.RevokeTicket(tc.ctx, id); !errors.Is(err, tc.want) {
			t.Errorf("revoked during an access: %v, want %v", err, tc.want)
		}
		if a.Tickets() != 1 {
			t.Errorf("%d tickets are open, want the one that is not revoked", a.Tickets())
		}
	}
	if !g.Stopped() {
		t.Error("the access was not asked to end")
	}
	if _, err := a.tickets.acquire(Write, id, []Desc{middle}, nil); StatusOf(err) != ErrNotAllowed {
		t.Errorf("another access meanwhile: %v", err)
	}
	g.Release(0)
	if err := a.RevokeTicket(over, id); err != nil || a.Tickets() != 0 {
		t.Errorf("revoke after the access: %v, %d tickets", err, a.Tickets())
	}
}

// Peers of an agent that closes are told so, and get no memory.
func TestNoAccessToAClosedAgent(t *testing.T) {
	a, _, middle, id := ticketed(t)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if g, err := a.tickets.acquire(Write, id, []Desc{middle}, nil); g != nil || StatusOf(err) != ErrRemoteDisconnect {
		t.Errorf("access = %v, %v, want %v", g, err, ErrRemoteDisconnect)
	}
	if _, err := a.OpenTicket(TicketSpec{Access: Write, Descs: []Desc{middle}}); err == nil {
		t.Error("a closed agent opens a ticket")
	}
}

// Lengths and addresses that wrap around are outside of every ticket, also beside
// descriptors that are not.
func TestAccessDoesNotOverflow(t *testing.T) {
	a, whole, middle, id := ticketed(t)
	for _, d := range []Desc{
		{}, {Addr: middle.Addr}, whole,
		{Addr: middle.Addr, Len: math.MaxUint64}, {Addr: middle.Addr, Len: -middle.Addr}, {Addr: middle.Addr, Len: -middle.Addr + 1},
		{Addr: middle.Addr + 1, Len: math.MaxUint64}, {Addr: middle.Addr, Len: 1 << 63}, {Addr: middle.Addr, Len: math.MaxInt64},
		{Addr: middle.Addr - 1, Len: 1}, {Addr: middle.Addr - 1, Len: 2}, {Addr: middle.End(), Len: 1}, {Addr: middle.End() - 1, Len: 2},
		{Addr: 0, Len: middle.End()}, {Addr: math.MaxUint64, Len: 1}, {Addr: math.MaxUint64, Len: math.MaxUint64},
		{Addr: middle.Addr, Len: 1, DevID: 1}, {Addr: middle.Addr, Len: 1, DevID: math.MaxUint64},
	} {
		for _, list := range [][]Desc{{d}, {middle, d}, {d, middle}} {
			if g, err := a.tickets.acquire(Write, id, list, nil); err == nil {
				t.Errorf("%v is accessed under a ticket for %s", list, middle)
				g.Release(0)
			}
		}
	}
	g, err := a.tickets.acquire(Write, id, []Desc{middle, {Addr: middle.Addr, Len: 1}, {Addr: middle.End() - 1, Len: 1}}, nil)
	if err != nil {
		t.Fatalf("what the ticket is for: %v", err)
	}
	for i, n := range []int{4096, 1, 1} {
		if s := g.Segments()[i]; len(s) != n || cap(s) != n {
			t.Errorf("segment %d has %d bytes of %d, want %d", i, len(s), cap(s), n)
		}
	}
	g.Release(0)
}
