package kvfeed

import (
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/kvindex"
)

// Blocks without events expire, reuse renews them, the oldest go first for want of room,
// and a worker that leaves leaves nothing.
func TestApprox(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	at := func(s int) time.Time { return now.Add(time.Duration(s) * time.Second) }
	index := kvindex.New(kvindex.Config{})
	overlap := func(w cluster.InstanceID, hashes ...uint64) int {
		var m kvindex.Match
		index.Lookup(hashes, &m)
		return m.Find(w).Total()
	}
	a := NewApprox(index, DefaultTTL, 10)
	a.Routed(1, []uint64{1, 2, 3}, at(0))
	a.Routed(2, []uint64{1}, at(60))
	a.Routed(1, []uint64{1, 2}, at(100)) // renews two of three
	if overlap(1, 1, 2, 3) != 3 || overlap(2, 1, 2) != 1 {
		t.Error("prompts are not found where they were sent")
	}
	a.Expire(at(119))
	if overlap(1, 1, 2, 3) != 3 {
		t.Error("a block expired too early")
	}
	a.Expire(at(120))
	if overlap(1, 1, 2, 3) != 2 {
		t.Error("a block did not expire, or was not renewed")
	}
	a.Expire(at(180))
	if overlap(2, 1) != 0 || overlap(1, 1, 2) != 2 {
		t.Error("the blocks of two workers expire together")
	}
	a.Routed(3, []uint64{11, 12, 13, 14, 15, 16, 17}, at(190))
	if len(a.entries) != 9 || overlap(1, 1, 2) != 2 {
		t.Errorf("%d entries: something went though there was room", len(a.entries))
	}
	a.Routed(3, []uint64{21, 22}, at(191)) // 11: down to 8
	if len(a.entries) != 8 || overlap(1, 1) != 0 || overlap(3, 11, 12, 13, 14, 15, 16, 17) != 6 || overlap(3, 21, 22) != 2 {
		t.Errorf("%d entries; of the oldest %d, of the next %d", len(a.entries), overlap(1, 1, 2), overlap(3, 11, 12, 13, 14, 15, 16, 17))
	}
	a.Drop(3)
	a.Drop(9)
	if len(a.entries) != 0 || a.first != nil || a.last != nil {
		t.Errorf("%d entries of a worker that has left", len(a.entries))
	}
	a.Routed(3, []uint64{21}, at(192))
	if overlap(3, 21) != 1 || a.first != a.last {
		t.Error("a worker cannot come back")
	}
}
