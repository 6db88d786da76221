package nixl_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/local"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/nixl/tcp"
)

// both returns an environment whose agents have both transports.
func both() nixltest.Env {
	reg := local.NewRegistry(0)
	return nixltest.Env{Transports: func() []nixl.Transport { return []nixl.Transport{reg.Transport(), tcp.New(tcp.Options{})} }}
}

func TestTransportChoice(t *testing.T) {
	here, there := both(), both()
	onlyLocal := func(e nixltest.Env) nixltest.Env {
		return nixltest.Env{Transports: func() []nixl.Transport { return e.Transports()[:1] }}
	}
	force := func(names ...string) func(*nixl.Config) { return func(c *nixl.Config) { c.Force = names } }
	for _, c := range []struct {
		name      string
		a, b      nixltest.Env
		change    func(*nixl.Config)
		transport string
		reason    string
	}{
		{"same process", here, here, force(), "local", "same process"},
		{"other process", here, there, force(), "tcp", "local: peer is in another process"},
		{"forced", here, here, force("tcp"), "tcp", "not among the forced transports"},
		{"peer without local", here, nixltest.Env{Transports: func() []nixl.Transport { return []nixl.Transport{tcp.New(tcp.Options{})} }}, force(), "tcp", "peer does not offer it"},
		{"nothing in common", onlyLocal(here), there, force(), "", "no transport"},
		{"forced to what does not reach", here, there, force("local"), "", "no transport"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := c.a.Agent(t, "a", c.change), c.b.Agent(t, "b")
			defer func() { _ = a.Close() }()
			defer func() { _ = b.Close() }()
			_, err := a.LoadRemote(b.Metadata())
			if c.transport == "" {
				if nixl.StatusOf(err) != nixl.ErrNotSupported || !strings.Contains(err.Error(), c.reason) {
					t.Errorf("LoadRemote(): %v", err)
				}
				if len(a.Peers()) != 0 {
					t.Errorf("peers = %+v", a.Peers())
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if p := a.Peers()[0]; p.Transport != c.transport || !strings.Contains(p.Reason, c.reason) || p.State != nixl.PeerLoaded {
				t.Errorf("peer = %+v", p)
			}
			if err := a.Notify(nixltest.Context(t), "b", []byte("hi")); err != nil {
				t.Error(err)
			}
			nixltest.Next(t, b)
		})
	}
}

func TestLoadRemoteErrors(t *testing.T) {
	e := both()
	a := e.Agent(t, "a", func(c *nixl.Config) { c.Limits.Peers = 2 })
	if _, err := a.LoadRemote(a.Metadata()); nixl.StatusOf(err) != nixl.ErrInvalidParam {
		t.Errorf("own blob: %v", err)
	}
	if _, err := a.LoadRemote([]byte("garbage")); nixl.StatusOf(err) != nixl.ErrMismatch {
		t.Errorf("garbage: %v", err)
	}
	b := e.Agent(t, "b")
	nixltest.Load(t, a, b)
	if _, err := a.RemoteRegion("b", "kv"); nixl.StatusOf(err) != nixl.ErrNotFound {
		t.Errorf("region before it is registered: %v", err)
	}
	r, _ := nixltest.Region(t, b, 4096)
	nixltest.Load(t, a, b) // the same incarnation with one more region
	if got := nixltest.Remote(t, a, b); got.Base != r.Desc(0, 4096) || got.Desc(4000, 97) != (nixl.Desc{}) {
		t.Errorf("region = %+v", got)
	}
	// Under b's name and incarnation, but elsewhere.
	other := both().Agent(t, "b", func(c *nixl.Config) { c.Incarnation = b.Incarnation() })
	if _, err := a.LoadRemote(other.Metadata()); nixl.StatusOf(err) != nixl.ErrNotAllowed {
		t.Errorf("other connection data: %v", err)
	}
	nixltest.Load(t, a, e.Agent(t, "c"))
	d := e.Agent(t, "d")
	if _, err := a.LoadRemote(d.Metadata()); nixl.StatusOf(err) != nixl.ErrBackend {
		t.Errorf("one peer too many: %v", err)
	}
	// A failed peer makes room.
	_ = b.Close()
	nixltest.Poll(t, "b has failed", func() bool { return !a.Known("b", "") })
	nixltest.Load(t, a, d)
	_ = a.Close()
	if _, err := a.LoadRemote(d.Metadata()); nixl.StatusOf(err) != nixl.ErrNotAllowed {
		t.Errorf("after Close: %v", err)
	}
}

func TestNewAgentErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  nixl.Config
		want nixl.Status
	}{
		{"no name", nixl.Config{}, nixl.ErrInvalidParam},
		{"long name", nixl.Config{Name: strings.Repeat("x", 300)}, nixl.ErrInvalidParam},
		{"wildcard without a host", nixl.Config{Name: "a", Key: nixltest.Key, Transports: []nixl.Transport{tcp.New(tcp.Options{Listen: ":0"})}}, nixl.ErrInvalidParam},
		{"no key", nixl.Config{Name: "a", Transports: []nixl.Transport{tcp.New(tcp.Options{})}}, nixl.ErrInvalidParam},
		{"unknown address", nixl.Config{Name: "a", Key: nixltest.Key, Transports: []nixl.Transport{tcp.New(tcp.Options{Listen: "192.0.2.1:1"})}}, nixl.ErrUnknown},
	} {
		if _, err := nixl.NewAgent(c.cfg); nixl.StatusOf(err) != c.want {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	e := both()
	a := e.Agent(t, "a", func(c *nixl.Config) { c.Incarnation = "1" })
	if _, err := nixl.NewAgent(nixl.Config{Name: "a", Incarnation: "1", Key: nixltest.Key, Transports: e.Transports()}); nixl.StatusOf(err) != nixl.ErrInvalidParam {
		t.Errorf("the same agent twice: %v", err)
	}
	if a.Name() != "a" || a.Incarnation() != "1" {
		t.Errorf("identity = %s %s", a.Name(), a.Incarnation())
	}
}

func TestNewTransferErrors(t *testing.T) {
	e := both()
	a := e.Agent(t, "a", func(c *nixl.Config) { c.Limits.Descs = 4; c.Limits.NotifySize = 10 })
	b := e.Agent(t, "b")
	la, _ := nixltest.Region(t, a, 8192)
	lb, _ := nixltest.Region(t, b, 8192)
	lb2, _ := nixltest.Region(t, b, 8192)
	nixltest.Load(t, a, b)
	one, there := la.Desc(0, 100), lb.Desc(0, 100)
	spread := func(r *nixl.Region, n int) (out []nixl.Desc) {
		for i := range uint64(n) {
			out = append(out, r.Desc(i*200, 100))
		}
		return out
	}
	for _, c := range []struct {
		name          string
		op            nixl.Op
		local, remote []nixl.Desc
		peer          string
		opts          nixl.TransferOpts
		want          nixl.Status
	}{
		{"unknown operation", 7, []nixl.Desc{one}, []nixl.Desc{there}, "b", nixl.TransferOpts{}, nixl.ErrInvalidParam},
		{"unknown peer", nixl.Write, []nixl.Desc{one}, []nixl.Desc{there}, "x", nixl.TransferOpts{}, nixl.ErrNotFound},
		{"no descriptors", nixl.Write, nil, nil, "b", nixl.TransferOpts{}, nixl.ErrInvalidParam},
		{"unequal lists", nixl.Write, []nixl.Desc{one, one}, []nixl.Desc{there}, "b", nixl.TransferOpts{}, nixl.ErrInvalidParam},
		{"unequal lengths", nixl.Write, []nixl.Desc{la.Desc(0, 99)}, []nixl.Desc{there}, "b", nixl.TransferOpts{}, nixl.ErrInvalidParam},
		{"empty descriptor", nixl.Write, []nixl.Desc{{}}, []nixl.Desc{{}}, "b", nixl.TransferOpts{}, nixl.ErrNotFound},
		{"local memory not registered", nixl.Write, []nixl.Desc{{Addr: 4096, Len: 100}}, []nixl.Desc{there}, "b", nixl.TransferOpts{}, nixl.ErrNotFound},
		{"outside of the local region", nixl.Write, []nixl.Desc{{Addr: one.Addr + 8192 - 50, Len: 100}}, []nixl.Desc{there}, "b", nixl.TransferOpts{}, nixl.ErrNotFound},
		{"remote memory not registered", nixl.Write, []nixl.Desc{one}, []nixl.Desc{{Addr: 4096, Len: 100}}, "b", nixl.TransferOpts{}, nixl.ErrNotFound},
		{"across two regions", nixl.Write, []nixl.Desc{la.Desc(0, 100)}, []nixl.Desc{{Addr: there.Addr + 8192 - 50, Len: 100}}, "b", nixl.TransferOpts{}, nixl.ErrNotFound},
		{"too many pieces", nixl.Write, spread(la, 5), spread(lb, 5), "b", nixl.TransferOpts{}, nixl.ErrInvalidParam},
		{"long notification", nixl.Write, []nixl.Desc{one}, []nixl.Desc{there}, "b", nixl.TransferOpts{Notify: make([]byte, 11)}, nixl.ErrInvalidParam},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := a.NewTransfer(c.op, c.local, c.remote, c.peer, c.opts); nixl.StatusOf(err) != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	// Neighbors count as one.
	var l, r []nixl.Desc
	for i := range uint64(20) {
		l, r = append(l, la.Desc(i*100, 100)), append(r, lb2.Desc(i*100, 100))
	}
	x := nixltest.New(t, a, nixl.Write, l, r, "b", nixl.TransferOpts{Ticket: nixltest.Ticket(t, b, nixl.Write, r...)})
	nixltest.WantStatus(t, nixltest.Do(t, x), nixl.Success)
	if tele, err := x.Telemetry(); err != nil || tele.Descs != 1 || tele.Bytes != 2000 || tele.PostDuration <= 0 || tele.PostDuration > tele.XferDuration+time.Second {
		t.Errorf("Telemetry() = %+v, %v", tele, err)
	}
}

func TestOpenTicketErrors(t *testing.T) {
	a := nixltest.Env{Transports: func() []nixl.Transport { return nil }}.Agent(t, "a", func(c *nixl.Config) { c.Limits.Tickets = 2; c.Limits.Descs = 3 })
	r, _ := nixltest.Region(t, a, 4096)
	d := r.Desc(0, 10)
	for _, c := range []struct {
		name string
		spec nixl.TicketSpec
		want nixl.Status
	}{
		{"no memory", nixl.TicketSpec{}, nixl.ErrInvalidParam},
		{"unknown access", nixl.TicketSpec{Access: 9, Descs: []nixl.Desc{d}}, nixl.ErrInvalidParam},
		{"foreign memory", nixl.TicketSpec{Descs: []nixl.Desc{{Addr: 1, Len: 2}}}, nixl.ErrNotFound},
		{"outside of the region", nixl.TicketSpec{Descs: []nixl.Desc{r.Desc(4000, 97)}}, nixl.ErrNotFound},
		{"too many pieces", nixl.TicketSpec{Descs: []nixl.Desc{d, d, d, d}}, nixl.ErrInvalidParam},
		{"in the past", nixl.TicketSpec{Descs: []nixl.Desc{d}, Deadline: time.Now().Add(-time.Second)}, nixl.ErrInvalidParam},
	} {
		if _, err := a.OpenTicket(c.spec); nixl.StatusOf(err) != c.want {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
	}
	ids := map[nixl.TicketID]bool{nixltest.Ticket(t, a, nixl.Read, d): true, nixltest.Ticket(t, a, nixl.Read, d): true}
	if _, err := a.OpenTicket(nixl.TicketSpec{Descs: []nixl.Desc{d}}); nixl.StatusOf(err) != nixl.ErrBackend {
		t.Errorf("one ticket too many: %v", err)
	}
	if len(ids) != 2 || a.Tickets() != 2 {
		t.Errorf("%d ids, %d tickets", len(ids), a.Tickets())
	}
	for id := range ids {
		back, err := nixl.ParseTicketID(id.String())
		if err != nil || back != id || id.IsZero() {
			t.Errorf("ParseTicketID(%s) = %s, %v", id, back, err)
		}
		if err := a.RevokeTicket(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	for _, s := range []string{"", "12", strings.Repeat("g", 32), strings.Repeat("0", 33)} {
		if _, err := nixl.ParseTicketID(s); nixl.StatusOf(err) != nixl.ErrInvalidParam {
			t.Errorf("ParseTicketID(%q): %v", s, err)
		}
	}
	if err := a.RevokeTicket(t.Context(), nixl.TicketID{1}); err != nil {
		t.Errorf("revoke an unknown ticket: %v", err)
	}
}

// Memory is exposed from the opening of a ticket to its proven end, and only that memory.
func TestExposed(t *testing.T) {
	a := nixltest.Env{Transports: func() []nixl.Transport { return nil }}.Agent(t, "a")
	r, _ := nixltest.Region(t, a, 4096)
	is := func(when string, op nixl.Op, d nixl.Desc, want bool) {
		t.Helper()
		if got := a.Exposed(op, []nixl.Desc{r.Desc(0, 1), d}); got != want {
			t.Errorf("%s: Exposed(%s, %s) = %t", when, op, d, got)
		}
	}
	is("no ticket", nixl.Write, r.Desc(100, 100), false)
	id := nixltest.Ticket(t, a, nixl.Write, r.Desc(100, 100))
	is("open", nixl.Write, r.Desc(199, 10), true)
	is("open", nixl.Write, r.Desc(0, 4096), true)
	is("open", nixl.Read, r.Desc(100, 100), false)
	is("open", nixl.Write, r.Desc(200, 10), false)
	is("open", nixl.Write, r.Desc(90, 10), false)
	if err := a.RevokeTicket(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	is("revoked", nixl.Write, r.Desc(100, 100), false)
}

// A peer in the same process that asks for scratch memory while the agent closes gets an
// error: there was a panic when it had been lent before, and memory that nobody freed else.
func TestProbeAfterClose(t *testing.T) {
	for _, lent := range []bool{false, true} {
		c := &capturing{Transport: local.NewRegistry(0).Transport()}
		a := nixltest.Env{Transports: func() []nixl.Transport { return []nixl.Transport{c} }}.Agent(t, "a")
		if lent {
			if _, err := c.host.OpenProbe("b"); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		if p, err := c.host.OpenProbe("b"); nixl.StatusOf(err) != nixl.ErrRemoteDisconnect {
			t.Errorf("lent before: %t: %+v, %v", lent, p, err)
		}
	}
}

// capturing is a transport that shows its host.
type capturing struct {
	nixl.Transport
	host nixl.Host
}

func (c *capturing) Start(h nixl.Host) ([]byte, error) {
	c.host = h
	return c.Transport.Start(h)
}

func TestRegisterErrors(t *testing.T) {
	a := nixltest.Env{Transports: func() []nixl.Transport { return nil }}.Agent(t, "a", func(c *nixl.Config) { c.Limits.Regions = 1 })
	for _, c := range []struct {
		name  string
		mem   nixl.Memory
		typ   nixl.MemType
		label string
		want  nixl.Status
	}{
		{"device memory", nixltest.Heap(nil), nixl.VRAM, "", nixl.ErrNotSupported},
		{"memory without bytes", nixltest.Heap(nil), nixl.DRAM, "", nixl.ErrNotSupported},
		{"long label", nixltest.Heap{1}, nixl.DRAM, strings.Repeat("x", 256), nixl.ErrInvalidParam},
	} {
		if _, err := a.Register(c.mem, c.typ, nixl.WithLabel(c.label)); nixl.StatusOf(err) != c.want {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
	}
	r, _ := nixltest.Region(t, a, 10)
	if _, err := a.Register(nixltest.Heap{1}, nixl.DRAM); nixl.StatusOf(err) != nixl.ErrBackend {
		t.Errorf("one region too many: %v", err)
	}
	if s := a.Stats(); s.Regions != 1 || s.RegisteredBytes != 10 {
		t.Errorf("stats = %+v", s)
	}
	first := r.Desc(0, 10)
	if err := errors.Join(r.Deregister(), r.Deregister()); err != nil {
		t.Error(err)
	}
	r, _ = nixltest.Region(t, a, 10)
	if r.Desc(0, 10) == first {
		t.Error("an address was used twice")
	}
	if r.Label() != "kv" || r.Len() != 10 {
		t.Errorf("region = %q, %d bytes", r.Label(), r.Len())
	}
}

func TestArena(t *testing.T) {
	for _, size := range []int64{0, -1, 1 << 60} {
		if _, err := nixl.NewArena(size); nixl.StatusOf(err) != nixl.ErrInvalidParam {
			t.Errorf("NewArena(%d): %v", size, err)
		}
	}
	ar, err := nixl.NewArena(5000)
	if err != nil {
		t.Fatal(err)
	}
	b := ar.Bytes()
	if len(b) != 8192 || !bytes.Equal(b, make([]byte, 8192)) {
		t.Errorf("%d bytes", len(b))
	}
	if err := errors.Join(ar.Close(), ar.Close()); err != nil || ar.Bytes() != nil {
		t.Errorf("Close(): %v", err)
	}
	a := nixltest.Env{Transports: func() []nixl.Transport { return nil }}.Agent(t, "a")
	if _, err := a.Register(ar, nixl.DRAM); err == nil {
		t.Error("a closed arena was registered")
	}
}

// TestOnNotify checks that the handler gets all messages, one at a time.
func TestOnNotify(t *testing.T) {
	got := make(chan string, 100)
	e := both()
	a := e.Agent(t, "a")
	b := e.Agent(t, "b", func(c *nixl.Config) {
		c.OnNotify = func(n nixl.Notification) { got <- n.From + string(n.Msg) }
	})
	nixltest.Load(t, a, b)
	for i := range 50 {
		if err := a.Notify(t.Context(), "b", fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 50 {
		if s := <-got; s != fmt.Sprint("a", i) {
			t.Fatalf("message %d = %q", i, s)
		}
	}
}

// TestOutstanding posts more transfers than the limit.
func TestOutstanding(t *testing.T) {
	e := both()
	a := e.Agent(t, "a", func(c *nixl.Config) { c.Limits.Outstanding = 1 })
	b := e.Agent(t, "b", func(c *nixl.Config) { c.Limits.NotifyBytes = 1 })
	la, _ := nixltest.Region(t, a, 64)
	lb, _ := nixltest.Region(t, b, 64)
	nixltest.Load(t, a, b)
	if err := a.Notify(t.Context(), "b", nil); err != nil { // fills b: what follows waits
		t.Fatal(err)
	}
	id := nixltest.Ticket(t, b, nixl.Write, lb.Desc(0, 64))
	post := func() *nixl.Transfer {
		x := nixltest.New(t, a, nixl.Write, []nixl.Desc{la.Desc(0, 64)}, []nixl.Desc{lb.Desc(0, 64)}, "b", nixl.TransferOpts{Ticket: id, HasNotify: true})
		x.Post()
		return x
	}
	first := post()
	if st := first.Post(); st != nixl.ErrRepostActive {
		t.Errorf("second post = %s", st)
	}
	if err := first.Err(); err != nil {
		t.Errorf("the second post disturbed the first: %v", err)
	}
	nixltest.WantStatus(t, nixltest.End(t, post()), nixl.ErrBackend)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := first.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait(): %v", err)
	}
	nixltest.Next(t, b)
	nixltest.Next(t, b)
	nixltest.WantStatus(t, nixltest.End(t, first), nixl.Success)
	if s := a.Stats(); s.Errors[nixl.ErrBackend] != 1 || s.Succeeded != 1 {
		t.Errorf("stats = %+v", s)
	}
}
