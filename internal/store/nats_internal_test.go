package store

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

func FuzzNATSKey(f *testing.F) {
	for _, key := range []string{"/services/ns/c/e/1", "a.b", "=", "*", ">", "ü", "\x00\xff", " ", "A_-9", "=41", "=zz", "=4"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if back, ok := natsUnescape(key); ok && natsEscape(back) != key {
			t.Errorf("%q is read as %q, which is written %q", key, back, natsEscape(back))
		}
		if key == "" {
			return
		}
		token := natsEscape(key)
		if strings.ContainsAny(token, ".*> \t\r\n") {
			t.Errorf("%q becomes %q, which is no token of a subject", key, token)
		}
		if back, ok := natsUnescape(token); !ok || back != key {
			t.Errorf("%q becomes %q and %q, %t", key, token, back, ok)
		}
	})
}

// replayed is a NATS store without a server.
func replayed() *NATS {
	return &NATS{state: newReplica(), moved: make(chan struct{}), dead: map[string]tomb{}, grants: map[cluster.InstanceID]Revision{}, held: map[cluster.InstanceID]time.Time{}}
}

// Whoever reads the last messages of all subjects has the same state as whoever has read all.
func TestNATSSnapshotIsTheWholeHistory(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // repeatable
		all, last := replayed(), map[string]natsChange{}
		var seq Revision
		for range 60 {
			seq++
			c := randomChange(r, seq)
			all.apply(c)
			last[c.subject] = c
		}
		snapshot := &natsSnapshot{}
		for _, c := range last {
			snapshot.add(c)
		}
		slices.SortFunc(snapshot.changes, func(a, b natsChange) int { return int(a.seq - b.seq) })
		adopted := replayed()
		adopted.applied.seq = 1000 // of a history that was lost
		adopted.adopt(snapshot, seq)
		if !reflect.DeepEqual(adopted.state.list(""), all.state.list("")) {
			t.Fatalf("seed %d: the state is %v, want %v", seed, adopted.state.list(""), all.state.list(""))
		}
		if adopted.applied != all.applied {
			t.Errorf("seed %d: it ends with %v, want %v", seed, adopted.applied, all.applied)
		}
		if !reflect.DeepEqual(adopted.grants, all.grants) {
			t.Errorf("seed %d: leases %v, want %v", seed, adopted.grants, all.grants)
		}
		for id, lease := range all.state.leases {
			if got := adopted.state.leases[id]; got == nil || got.ttl != lease.ttl || got.beats != lease.beats || !reflect.DeepEqual(got.keys, lease.keys) {
				t.Errorf("seed %d: lease %s is %+v, want %+v", seed, id, got, lease)
			}
		}
		if !reflect.DeepEqual(adopted.dead, all.dead) {
			t.Errorf("seed %d: to be purged: %v, want %v", seed, adopted.dead, all.dead)
		}
	}
}

// randomChange is a message that a client could write, or one that only a broken client does.
func randomChange(r *rand.Rand, seq Revision) natsChange {
	c := natsChange{seq: seq, at: time.Unix(int64(seq), 0), id: cluster.InstanceID(100 + r.IntN(int(seq))), gone: r.IntN(3) == 0}
	switch r.IntN(4) {
	case 0:
		c.kind, c.subject = natsBeats, natsBeats+c.id.String()
		c.gone = false
	case 1:
		if !c.gone { // an id is granted once
			c.id = cluster.InstanceID(100 + seq)
		}
		c.kind, c.subject, c.ttl = natsLeases, natsLeases+c.id.String(), time.Duration(1+r.IntN(9))*time.Second
	default:
		c.key = fmt.Sprint("k/", r.IntN(5))
		c.kind, c.subject, c.value = natsKeys, natsKeys+natsEscape(c.key), fmt.Append(nil, seq)
		if r.IntN(2) == 0 {
			c.lease = cluster.InstanceID(100 + r.IntN(int(seq)))
		}
	}
	return c
}
