package tcp

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/proxytest"
)

// slowPair is an initiator that reaches its target through a proxy.
type slowPair struct {
	a, b   *nixl.Agent
	la, lb *nixl.Region
	ma, mb []byte
	proxy  *proxytest.Proxy
}

// through replaces Options.dial: connections go by way of the proxy.
func through(p *proxytest.Proxy) func(ctx context.Context, addr string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		p.Target(addr)
		var d net.Dialer
		return d.DialContext(ctx, "tcp", p.Addr())
	}
}

func newSlowPair(t *testing.T, size int, silence time.Duration) *slowPair {
	p := &slowPair{proxy: proxytest.New(t, "")}
	env := func(o Options) nixltest.Env {
		o.SilenceTimeout = silence
		return nixltest.Env{Name: Name, Transports: func() []nixl.Transport { return []nixl.Transport{New(o)} }}
	}
	p.a = env(Options{dial: through(p.proxy), SocketBuffer: 64 << 10}).Agent(t, "a")
	p.b = env(Options{SocketBuffer: 64 << 10}).Agent(t, "b")
	p.la, p.ma = nixltest.Region(t, p.a, size)
	p.lb, p.mb = nixltest.Region(t, p.b, size)
	nixltest.Load(t, p.a, p.b)
	nixltest.Fill(p.ma, 1)
	return p
}

func (p *slowPair) transfer(t *testing.T, op nixl.Op, id nixl.TicketID) *nixl.Transfer {
	t.Helper()
	return nixltest.New(t, p.a, op, []nixl.Desc{p.la.Desc(0, p.la.Len())},
		[]nixl.Desc{nixltest.Remote(t, p.a, p.b).Base}, "b", nixl.TransferOpts{Ticket: id, Notify: []byte("done")})
}

func (p *slowPair) ticket(t *testing.T, op nixl.Op) nixl.TicketID {
	return nixltest.Ticket(t, p.b, op, p.lb.Desc(0, p.lb.Len()))
}

// TestRevokeSlowWrite revokes in the middle of a write that takes seconds. The
// revoke must not wait for it, nothing may be written afterwards, and the
// connection must serve the next write.
func TestRevokeSlowWrite(t *testing.T) {
	const size = 4 << 20
	p := newSlowPair(t, size, 0)
	p.proxy.Bandwidth(256 << 10) // 256 KB/s per connection: 8 s
	id := p.ticket(t, nixl.Write)
	x := p.transfer(t, nixl.Write, id)
	x.Post()
	nixltest.Poll(t, "the write is on its way", func() bool { return p.proxy.Sent() > 200<<10 })
	start := time.Now()
	if err := p.b.RevokeTicket(nixltest.Context(t), id); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > patience.Soon/10 { // the transfer itself takes longer
		t.Errorf("RevokeTicket took %s", took)
	}
	written := 0
	for i := range p.mb {
		if p.mb[i] != 0 {
			written++
		}
		p.mb[i] = 0xEE
	}
	if written == 0 || written > size/2 {
		t.Errorf("%d bytes were written before the revoke", written)
	}
	before := p.proxy.Sent()
	nixltest.Poll(t, "more of the write arrives", func() bool { return p.proxy.Sent() > before+100<<10 })
	p.proxy.Bandwidth(0)
	nixltest.WantStatus(t, nixltest.End(t, x), nixl.ErrNotAllowed)
	if s := p.b.Stats(); s.InBytes == 0 || s.InBytes > size/2 {
		t.Errorf("bytes counted = %d", s.InBytes)
	}

	// The same connections carry on, and the marker is untouched up to then.
	for i := range p.mb {
		if p.mb[i] != 0xEE {
			t.Fatalf("byte %d was written under a revoked ticket", i)
		}
	}
	nixltest.WantStatus(t, nixltest.Do(t, p.transfer(t, nixl.Write, p.ticket(t, nixl.Write))), nixl.Success)
	nixltest.SameAt(t, p.b, p.mb, p.ma)
	nixltest.Next(t, p.b)
	nixltest.NoMore(t, p.b)
	if ps := p.b.Peers(); len(ps) != 1 || ps[0].Inbound != 1 {
		t.Errorf("peers = %+v", ps)
	}
}

// TestRevokeSlowRead revokes while the target is stuck in sending, in the last chunk
// or before: the memory must be free at once, what was cut off must not count as
// read, and the connection stays in step.
func TestRevokeSlowRead(t *testing.T) {
	for _, size := range []int{chunkBytes, 4 * chunkBytes} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			p := newSlowPair(t, size, 10*time.Second)
			nixltest.Fill(p.mb, 2)
			nixltest.WantStatus(t, p.a.Notify(nixltest.Context(t), "b", nil), nixl.Success) // connected
			nixltest.Next(t, p.b)
			p.proxy.Bandwidth(128 << 10)
			id := p.ticket(t, nixl.Read)
			x := p.transfer(t, nixl.Read, id)
			x.Post()
			nixltest.Poll(t, "the read is on its way", func() bool { in, _ := p.b.InFlight(); return in > 0 })
			p.proxy.Freeze()
			start := time.Now()
			if err := p.b.RevokeTicket(nixltest.Context(t), id); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took > patience.Soon/10 { // the transfer itself takes longer
				t.Errorf("RevokeTicket took %s", took)
			}
			p.proxy.Bandwidth(0)
			p.proxy.Heal()
			nixltest.WantStatus(t, nixltest.End(t, x), nixl.ErrNotAllowed)
			nixltest.WantStatus(t, nixltest.Do(t, p.transfer(t, nixl.Read, p.ticket(t, nixl.Read))), nixl.Success)
			nixltest.Same(t, p.ma, p.mb)
		})
	}
}

// TestReleaseSlow cancels in the middle of a slow transfer: local memory is free,
// and nothing of it arrives after Done.
func TestReleaseSlow(t *testing.T) {
	const size = 2 << 20
	for _, op := range []nixl.Op{nixl.Write, nixl.Read} {
		t.Run(op.String(), func(t *testing.T) {
			p := newSlowPair(t, size, 10*time.Second)
			p.proxy.Bandwidth(256 << 10)
			id := p.ticket(t, op)
			x := p.transfer(t, op, id)
			x.Post()
			nixltest.Poll(t, "the transfer is on its way", func() bool { in, _ := p.b.InFlight(); return in > 0 })
			if st := x.Release(); st != nixl.InProgress && st != nixl.ErrCanceled {
				t.Errorf("Release() = %s", st)
			}
			p.proxy.Bandwidth(0)
			nixltest.WantStatus(t, nixltest.End(t, x), nixl.ErrCanceled)
			nixltest.Fill(p.ma, 3)
			if op == nixl.Write {
				p.b.Tickets() // see nixltest.SameAt
				for i := range p.mb {
					p.mb[i] = 0xEE
				}
				p.b.Tickets()
			}
			p.proxy.Bandwidth(0)
			y := p.transfer(t, op, id)
			nixltest.WantStatus(t, nixltest.Do(t, y), nixl.Success)
			nixltest.SameAt(t, p.b, p.mb, p.ma)
			nixltest.Next(t, p.b)
			nixltest.NoMore(t, p.b)
		})
	}
}

// TestCut breaks one of the connections in the middle of transfers: all of them
// end, both agents learn it, and the peer can be loaded again.
func TestCut(t *testing.T) {
	p := newSlowPair(t, 2<<20, 0)
	p.proxy.Bandwidth(256 << 10)
	wt, rt := p.ticket(t, nixl.Write), p.ticket(t, nixl.Read)
	w, r := p.transfer(t, nixl.Write, wt), p.transfer(t, nixl.Read, rt)
	w.Post()
	r.Post()
	nixltest.Poll(t, "the write is on its way", func() bool { return p.proxy.Sent() > 50<<10 })
	start := time.Now()
	p.proxy.ResetOldest()
	nixltest.WantStatus(t, nixltest.End(t, w), nixl.ErrRemoteDisconnect)
	if err := nixltest.End(t, r); err != nil {
		nixltest.WantStatus(t, err, nixl.ErrRemoteDisconnect)
	}
	if took := time.Since(start); took > 4*time.Second { // silence would tell after five
		t.Errorf("noticed after %s", took)
	}
	for _, a := range []*nixl.Agent{p.a, p.b} {
		select {
		case d := <-a.PeerDowns():
			if d.Inbound != (a == p.b) || d.Cause == nil || d.Transport != Name {
				t.Errorf("event at %s = %+v", a.Name(), d)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s does not learn it", a.Name())
		}
	}
	nixltest.Poll(t, "accesses end", func() bool { in, _ := p.b.InFlight(); return in == 0 })
	p.proxy.Bandwidth(0)
	nixltest.Load(t, p.a, p.b)
	nixltest.WantStatus(t, nixltest.Do(t, p.transfer(t, nixl.Write, wt)), nixl.Success)
	nixltest.SameAt(t, p.b, p.mb, p.ma)
}

// TestSilence swallows all bytes: both sides give up after the silence timeout,
// and a release meanwhile does not make it longer.
func TestSilence(t *testing.T) {
	const silence = 600 * time.Millisecond
	p := newSlowPair(t, 2<<20, silence)
	p.proxy.Bandwidth(256 << 10)
	x := p.transfer(t, nixl.Write, p.ticket(t, nixl.Write))
	y := p.transfer(t, nixl.Write, p.ticket(t, nixl.Write))
	x.Post()
	y.Post()
	nixltest.Poll(t, "the write is on its way", func() bool { return p.proxy.Sent() > 50<<10 })
	p.proxy.Freeze()
	start := time.Now()
	y.Release()
	nixltest.WantStatus(t, nixltest.End(t, x), nixl.ErrRemoteDisconnect)
	nixltest.WantStatus(t, nixltest.End(t, y), nixl.ErrCanceled)
	if took := time.Since(start); took > patience.Soon/4 {
		t.Errorf("noticed after %s", took)
	}
	nixltest.Poll(t, "accesses end at the target", func() bool { in, _ := p.b.InFlight(); return in == 0 })
	nixltest.Poll(t, "the target forgets the session", func() bool { return len(p.b.Peers()) == 0 })
}

// TestIdle keeps a connection without transfers for several silence timeouts.
func TestIdle(t *testing.T) {
	t.Parallel()                    // it waits
	const silence = 2 * time.Second // a busy machine may stand still for longer than half a one
	p := newSlowPair(t, 4096, silence)
	nixltest.WantStatus(t, p.a.Notify(nixltest.Context(t), "b", nil), nixl.Success)
	select {
	case d := <-p.a.PeerDowns():
		t.Fatalf("an idle connection ended: %v", d.Cause)
	case d := <-p.b.PeerDowns():
		t.Fatalf("an idle connection ended: %v", d.Cause)
	case <-time.After(3 * silence):
	}
	nixltest.WantStatus(t, nixltest.Do(t, p.transfer(t, nixl.Write, p.ticket(t, nixl.Write))), nixl.Success)
}

func TestConnectFails(t *testing.T) {
	p := newSlowPair(t, 4096, 0)
	if err := p.b.Close(); err != nil {
		t.Fatal(err)
	}
	x := p.transfer(t, nixl.Write, nixl.TicketID{1})
	nixltest.WantStatus(t, nixltest.Do(t, x), nixl.ErrRemoteDisconnect)
	nixltest.Poll(t, "the peer has failed", func() bool { return !p.a.Known("b", "") })
}

// TestPortReused loads an outdated blob while the successor of that agent listens
// on the same port.
func TestPortReused(t *testing.T) {
	env := func(o Options) nixltest.Env {
		return nixltest.Env{Transports: func() []nixl.Transport { return []nixl.Transport{New(o)} }}
	}
	old := New(Options{}).(*transport)
	b := nixltest.Env{Transports: func() []nixl.Transport { return []nixl.Transport{old} }}.Agent(t, "b")
	outdated := b.Metadata()
	port := old.ln.Addr().String()
	_ = b.Close()
	a, b := env(Options{}).Agent(t, "a"), env(Options{Listen: port}).Agent(t, "b")
	if _, err := a.LoadRemote(outdated); err != nil {
		t.Fatal(err)
	}
	nixltest.WantStatus(t, a.Notify(nixltest.Context(t), "b", nil), nixl.ErrRemoteDisconnect)
	nixltest.NoMore(t, b)
	nixltest.Poll(t, "the refusal is counted", func() bool { return b.Stats().Refused[nixl.RefusedHello] > 0 })
	nixltest.Load(t, a, b)
	nixltest.WantStatus(t, a.Notify(nixltest.Context(t), "b", nil), nixl.Success)
}
