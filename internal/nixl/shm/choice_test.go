//go:build linux

package shm_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/fenced"
	"github.com/dynctl/dynctl/internal/nixl/fenced/fencedtest"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/nixl/shm"
	"github.com/dynctl/dynctl/internal/nixl/tcp"
	"github.com/dynctl/dynctl/internal/patience"
)

// either makes agents that have shm and, below it, tcp.
func either() nixltest.Env {
	pool := fenced.NewPool(1)
	return nixltest.Env{Arenas: true, Transports: func() []nixl.Transport {
		return []nixl.Transport{shm.New(pool, fenced.Options{}), tcp.New(tcp.Options{})}
	}}
}

func TestChoice(t *testing.T) {
	e := either()
	heap := nixltest.Env{Transports: e.Transports}
	onlyTCP := nixltest.Env{Transports: func() []nixl.Transport { return []nixl.Transport{tcp.New(tcp.Options{})} }}
	for _, c := range []struct {
		name              string
		peer              nixltest.Env
		change            func(*nixl.Config) // of the peer
		transport, reason string
		warns             bool
	}{
		{"shared memory", e, func(*nixl.Config) {}, "shm", "another process of this host", false},
		{"private memory", heap, func(*nixl.Config) {}, "tcp", `region "kv" of the peer is private`, true},
		{"other host", e, func(c *nixl.Config) { c.HostID = "other" }, "tcp", "another host", false},
		{"peer without shm", onlyTCP, func(*nixl.Config) {}, "tcp", "does not offer it", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log patience.Buffer
			a := e.Agent(t, "a", func(c *nixl.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
			b := c.peer.Agent(t, "b", c.change)
			c.peer.Region(t, b, 4096)
			nixltest.Load(t, a, b)
			p := a.Peers()[0]
			if p.Transport != c.transport || !strings.Contains(p.Reason, c.reason) {
				t.Errorf("chosen %s: %s", p.Transport, p.Reason)
			}
			if warned := strings.Contains(log.String(), "level=WARN"); warned != c.warns || !strings.Contains(log.String(), "transport="+c.transport) {
				t.Errorf("log: %s", log.String())
			}
			if _, err := a.SelfTest(nixltest.Context(t), "b"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPrivateRegionLater registers memory that cannot be shared after the peer was
// loaded: loaded again, it is reached another way.
func TestPrivateRegionLater(t *testing.T) {
	e := either()
	a, b := e.Agent(t, "a"), e.Agent(t, "b")
	la, ma := e.Region(t, a, 4096)
	lb, mb := e.Region(t, b, 4096)
	nixltest.Load(t, a, b)
	nixltest.Fill(ma, 1)
	write := func(to *nixl.Region, mem []byte, transport string) *nixl.Transfer {
		t.Helper()
		x := nixltest.New(t, a, nixl.Write, []nixl.Desc{la.Desc(0, 4096)}, []nixl.Desc{to.Desc(0, 4096)}, "b",
			nixl.TransferOpts{Ticket: nixltest.Ticket(t, b, nixl.Write, to.Desc(0, 4096))})
		nixltest.WantStatus(t, nixltest.Do(t, x), nixl.Success)
		nixltest.SameAt(t, b, mem, ma)
		for _, p := range a.Peers() {
			if p.Name == "b" && p.Transport != transport {
				t.Errorf("written over %s, want %s", p.Transport, transport)
			}
		}
		return x
	}
	old := write(lb, mb, "shm")
	private, mp := nixltest.Region(t, b, 4096)
	nixltest.Load(t, a, b)
	if st := old.Post(); st != nixl.ErrNotFound {
		t.Errorf("post over the way that is gone = %s", st)
	}
	write(private, mp, "tcp")
	clear(mb)
	write(lb, mb, "tcp")
}

// TestUnsharedRegion asks for memory that cannot be shared although the metadata
// said that all can be: the access is refused, and nothing breaks.
func TestUnsharedRegion(t *testing.T) {
	e := env(fenced.Options{})
	a, b := e.Agent(t, "a"), e.Agent(t, "b")
	la, _ := e.Region(t, a, 4096)
	lb, _ := e.Region(t, b, 4096)
	nixltest.Load(t, a, b)
	private, _ := nixltest.Region(t, b, 4096)
	if _, err := a.LoadRemote(b.Metadata()); nixl.StatusOf(err) != nixl.ErrNotSupported {
		t.Errorf("LoadRemote() with a private region and no other way: %v", err)
	}
	if _, err := a.NewTransfer(nixl.Write, []nixl.Desc{la.Desc(0, 9)}, []nixl.Desc{private.Desc(0, 9)}, "b", nixl.TransferOpts{}); nixl.StatusOf(err) != nixl.ErrNotFound {
		t.Errorf("transfer to a region that was not loaded: %v", err)
	}
	x := nixltest.New(t, a, nixl.Write, []nixl.Desc{la.Desc(0, 9)}, []nixl.Desc{lb.Desc(0, 9)}, "b",
		nixl.TransferOpts{Ticket: nixltest.Ticket(t, b, nixl.Write, lb.Desc(0, 9))})
	nixltest.WantStatus(t, nixltest.Do(t, x), nixl.Success)
}

// TestDeregisteredRegion deregisters memory that a peer has mapped: the peer lets go
// of its pages while the connection stays.
func TestDeregisteredRegion(t *testing.T) {
	fencedtest.NothingLeft(t)
	e := env(fenced.Options{})
	a, b := e.Agent(t, "a"), e.Agent(t, "b")
	la, ma := e.Region(t, a, 64<<10)
	nixltest.Fill(ma, 1)
	var before fencedtest.Resources
	for round := range 3 {
		ar, err := nixl.NewArena(64 << 10)
		if err != nil {
			t.Fatal(err)
		}
		lb, err := b.Register(ar, nixl.DRAM, nixl.WithLabel("kv"))
		if err != nil {
			t.Fatal(err)
		}
		nixltest.Load(t, a, b)
		id := nixltest.Ticket(t, b, nixl.Write, lb.Desc(0, lb.Len()))
		x := nixltest.New(t, a, nixl.Write, []nixl.Desc{la.Desc(0, la.Len())}, []nixl.Desc{lb.Desc(0, lb.Len())}, "b", nixl.TransferOpts{Ticket: id})
		nixltest.WantStatus(t, nixltest.Do(t, x), nixl.Success)
		if err := b.RevokeTicket(nixltest.Context(t), id); err != nil {
			t.Fatal(err)
		}
		if err := lb.Deregister(); err != nil {
			t.Fatal(err)
		}
		if err := ar.Close(); err != nil {
			t.Fatal(err)
		}
		if round == 0 { // connected: fences are mapped
			nixltest.Poll(t, "the region is unmapped", func() bool { before = fencedtest.Held(t); return before.Maps == 3 })
		}
		nixltest.Poll(t, "the region is unmapped again", func() bool { return fencedtest.Held(t) == before })
	}
}
