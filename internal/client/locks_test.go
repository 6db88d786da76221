package client

import (
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
)

func TestLocks(t *testing.T) {
	c := lab(t)
	a, b, d := grant(t, c, 30*time.Second), grant(t, c, time.Minute), grant(t, c, time.Minute)
	lock := store.NewRWLock(c.store, "lab/models")
	if _, err := lock.Lock(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	shared := store.NewRWLock(c.store, "snapshots")
	for _, reader := range []string{"r1", "r2"} {
		if _, err := shared.RLock(t.Context(), b, reader); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range []struct {
		key, value string
		lease      cluster.InstanceID
	}{
		{"v1/lab/models/writers/" + d.String(), "waiting", d},
		{"v1/lab/models/writers/" + b.String(), "waiting", b},
		{cluster.ElectionPrefix("lab") + "/" + d.String(), "node-1", d},
		{cluster.ElectionPrefix("lab") + "/" + a.String(), "node-2", a},
		{cluster.CardKey("lab", "decode", "writers", d), "{}", d},
	} {
		if _, err := c.store.Put(t.Context(), l.key, []byte(l.value), store.WithLease(l.lease)); err != nil {
			t.Fatal(err)
		}
	}
	locks, err := c.Locks(t.Context(), holders(nil, map[string]cluster.InstanceID{"worker-1": a}))
	if err != nil {
		t.Fatal(err)
	}
	want := []cluster.Lock{
		{Name: "lab/models", Claim: cluster.Writing, Owner: "worker-1", Lease: a},
		{Name: "lab/models", Claim: cluster.Waiting, Lease: d},
		{Name: "lab/models", Claim: cluster.Waiting, Lease: b},
		{Name: "leader/lab", Claim: cluster.Leading, Owner: "node-1", Lease: d},
		{Name: "leader/lab", Claim: cluster.Candidate, Owner: "worker-1", Lease: a},
		{Name: "snapshots", Claim: cluster.Reading, Owner: "r1", Lease: b},
		{Name: "snapshots", Claim: cluster.Reading, Owner: "r2", Lease: b},
	}
	if len(locks) != len(want) {
		t.Fatalf("locks: %+v", locks)
	}
	for i, l := range locks {
		if l.Left == nil || *l.Left <= 0 || *l.Left > time.Minute || (l.Lease == a) != (*l.Left <= 30*time.Second) {
			t.Errorf("%+v has %v left", l, l.Left)
		}
		if l.Left = nil; l != want[i] {
			t.Errorf("lock %d is %+v, want %+v", i, l, want[i])
		}
	}
}
