package kv_test

import (
	"testing"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/tcp"
	"github.com/dynctl/dynctl/internal/worker/kv"
	"github.com/dynctl/dynctl/internal/worker/kv/kvtest"
)

// A transfer is made between blocks that both pools have, and of no others.
func TestTransferOfBlocks(t *testing.T) {
	n := kvtest.New(t)
	a, b := n.Open(t, "worker-1"), n.Open(t, "worker-2")
	if _, err := a.Agent().LoadRemote(b.Agent().Metadata()); err != nil {
		t.Fatal(err)
	}
	prepare := func(mine []int32, agent string, theirs []int32) (*kv.Transfer, error) {
		return a.Prepare(nixl.Write, mine, kv.Peer{Agent: agent}, theirs)
	}
	if x, err := prepare([]int32{3, 4}, b.Name(), []int32{7, 1}); err != nil || x == nil {
		t.Errorf("blocks of both: %v, %v", x, err)
	}
	for name, bad := range map[string]func() (*kv.Transfer, error){
		"a stranger":         func() (*kv.Transfer, error) { return prepare([]int32{3}, "worker-9.x", []int32{7}) },
		"none here":          func() (*kv.Transfer, error) { return prepare([]int32{1 << 20}, b.Name(), []int32{7}) },
		"none there":         func() (*kv.Transfer, error) { return prepare([]int32{3}, b.Name(), []int32{-1}) },
		"more than go there": func() (*kv.Transfer, error) { return prepare([]int32{3, 4}, b.Name(), []int32{7}) },
	} {
		if x, err := bad(); err == nil || x != nil {
			t.Errorf("%s: %v, %v", name, x, err)
		}
	}
}

// The transport that a transfer is counted under is that of the worker it went to, not
// that of another peer.
func TestTransportOfPeer(t *testing.T) {
	n := kvtest.New(t)
	overTCP := func(c *kv.Config) { c.NIXL.Transports = []nixl.Transport{tcp.New(tcp.Options{})} }
	d := n.Open(t, "worker-9", func(c *kv.Config) { c.NIXL.Transports = append(c.NIXL.Transports, tcp.New(tcp.Options{})) })
	reached := map[string]string{"worker-1": "local", "worker-10": "tcp", "worker-2": "tcp", "worker-3": "local"}
	names := map[string]string{"worker-4": "worker-4.0a", "worker": "worker.0a"}
	for name, transport := range reached {
		var p *kv.Plane
		if transport == "tcp" {
			p = n.Open(t, name, overTCP)
		} else {
			p = n.Open(t, name)
		}
		names[name] = p.Name()
		if _, err := d.Agent().LoadRemote(p.Agent().Metadata()); err != nil {
			t.Fatal(err)
		}
	}
	reached["worker-4"] = "unknown"
	reached["worker"] = "unknown"
	for told, want := range map[string]string{"local": "local", "tcp": "tcp", "shm": "unknown", "": "unknown"} {
		if got := d.Transport(told); got != want {
			t.Errorf("%q counts as %s, want %s", told, got, want)
		}
	}
	for name, want := range reached {
		if got := d.TransportTo(names[name]); got != want {
			t.Errorf("%s is reached over %s, want %s", names[name], got, want)
		}
	}
}
