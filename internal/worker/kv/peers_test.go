package kv_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/worker/kv"
	"github.com/dynctl/dynctl/internal/worker/kv/kvtest"
)

// Of many workers some are met as they appear, others in the place of those that leave, and
// the rest when they are needed.
func TestSomeAreMetEarly(t *testing.T) {
	n := kvtest.New(t)
	key := func(p *kv.Plane) string { return cluster.NIXLMetadataKey(cluster.DefaultNamespace, p.Name()) }
	others := map[string]*kv.Plane{}
	for i := range 20 {
		p := n.Open(t, fmt.Sprintf("worker-%d", 1+i))
		others[p.Name()] = p
		if _, err := n.Store.Put(t.Context(), key(p), p.Agent().Metadata()); err != nil {
			t.Fatal(err)
		}
	}
	own := n.Open(t, "worker-99")
	peers, err := own.Follow(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer peers.Close()
	peers.MeetSome(func(cluster.Role) bool { return true })
	known := func() (met []string) {
		for _, p := range own.Agent().Peers() {
			if others[p.Name] != nil {
				met = append(met, p.Name)
			}
		}
		return met
	}
	const early = 8
	patience.Until(t, "some are met", func() bool { return len(known()) >= early })
	for _, gone := range known()[:3] {
		if err := n.Store.Delete(t.Context(), key(others[gone])); err != nil {
			t.Fatal(err)
		}
		delete(others, gone)
	}
	patience.Until(t, "others take their place", func() bool { return len(known()) >= early })
	for name := range others {
		leave, err := peers.Meet(t.Context(), name, nil)
		if err != nil {
			t.Fatal(err)
		}
		leave()
		if met := known(); len(met) > early+1 {
			t.Fatalf("%d of %d are met: %v", len(met), len(others), met)
		} else if len(met) == early+1 {
			return
		}
	}
	t.Error("all are met at once")
}

// watched counts the watches of a store.
type watched struct {
	store.Store
	watches atomic.Int64
}

func (w *watched) Watch(ctx context.Context, prefix string) (*store.Watcher, error) {
	w.watches.Add(1)
	return w.Store.Watch(ctx, prefix)
}

// The workers of a process share one watch of the metadata, and each forgets a peer that
// has left.
func TestPeersShareAWatch(t *testing.T) {
	n := kvtest.New(t)
	s := &watched{Store: n.Store}
	over := func(cfg *kv.Config) { cfg.Store = s }
	left := n.Open(t, "worker-9", over)
	key := cluster.NIXLMetadataKey(cluster.DefaultNamespace, left.Name())
	if _, err := s.Put(t.Context(), key, left.Agent().Metadata()); err != nil {
		t.Fatal(err)
	}
	var planes []*kv.Plane
	for i := range 5 {
		p := n.Open(t, fmt.Sprintf("worker-%d", 1+i), over)
		peers, err := p.Follow(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer peers.Close()
		leave, err := peers.Meet(t.Context(), left.Name(), nil)
		if err != nil {
			t.Fatal(err)
		}
		leave()
		planes = append(planes, p)
	}
	if n := s.watches.Load(); n != 1 {
		t.Errorf("%d watches", n)
	}
	if err := s.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	for _, p := range planes {
		patience.Until(t, "the peer is forgotten", func() bool { return !p.Agent().Known(left.Name(), "") })
	}
}

// A process keeps few of the connections that nobody uses. Those in use stay.
func TestIdleConnectionsAreClosed(t *testing.T) {
	kv.LimitIdle(t, 3)
	n := kvtest.New(t)
	var others []*kv.Plane
	for i := range 8 {
		p := n.Open(t, fmt.Sprintf("worker-%d", 1+i))
		if _, err := n.Store.Put(t.Context(), cluster.NIXLMetadataKey(cluster.DefaultNamespace, p.Name()), p.Agent().Metadata()); err != nil {
			t.Fatal(err)
		}
		others = append(others, p)
	}
	connected := func() (names string) {
		for i, p := range others {
			for _, from := range p.Agent().Peers() {
				if from.Inbound > 0 {
					names += fmt.Sprint(i)
				}
			}
		}
		return names
	}
	var own []*kv.Plane
	var all []*kv.Peers
	for i := range 2 { // two workers of the process share the limit
		own = append(own, n.Open(t, fmt.Sprintf("worker-%d", 20+i)))
		peers, err := own[i].Follow(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer peers.Close()
		all = append(all, peers)
	}
	meet := func(by, i int) func() {
		t.Helper()
		var leave func()
		patience.Until(t, "the path is proven", func() bool { // a machine under load may need a second try
			var err error
			leave, err = all[by].Meet(t.Context(), others[i].Name(), nil)
			return err == nil
		})
		if err := own[by].Agent().Notify(t.Context(), others[i].Name(), nil); err != nil {
			t.Fatal(err)
		}
		return leave
	}
	check := func(when, want string) {
		t.Helper()
		patience.Until(t, when, func() bool { return connected() == want })
	}
	first := meet(0, 0)
	for i := range 6 {
		meet(i%2, i)()
	}
	all[0].Rest(others[0].Name()) // it was picked just before it was used again
	check("one in use and three that are not", "0345")
	third := meet(0, 4)
	meet(1, 1)()
	check("one that is used again leaves its place to another one", "01345")
	third()
	check("which comes back", "0145")
	second := meet(0, 0)
	first()
	first() // again, which counts once
	for i := range 4 {
		meet(1, 4+i)()
	}
	check("still in use by another one", "0567")
	second()
	check("the latest that became idle", "067")
	meet(1, 6)()
	meet(0, 1)()
	check("what was used lately stays", "016")
	late := meet(0, 0)
	all[0].Close()
	meet(1, 2)()
	meet(1, 3)()
	meet(1, 4)()
	late() // counts no more
	check("a worker that ended leaves the limit to others, and its connections to its agent", "01234")
}
