package frontend

import (
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

const (
	recentSlots = 12
	// recentSlot is the time after which a slot is replaced: what is older than
	// cluster.KVRecent is forgotten in such steps.
	recentSlot = cluster.KVRecent / recentSlots
)

// recent adds up figures over the last cluster.KVRecent.
type recent[T interface{ Plus(T) T }] struct {
	slots [recentSlots]struct {
		n   int64 // which span of time, counted from the epoch
		sum T
	}
}

// add counts a figure at a time.
func (r *recent[T]) add(now time.Time, v T) {
	n := now.UnixNano() / int64(recentSlot)
	s := &r.slots[n%recentSlots]
	if s.n != n {
		var zero T
		s.n, s.sum = n, zero
	}
	s.sum = s.sum.Plus(v)
}

// sum returns the sum of the figures of the last cluster.KVRecent.
func (r *recent[T]) sum(now time.Time) (sum T) {
	n := now.UnixNano() / int64(recentSlot)
	for i := range r.slots {
		if s := &r.slots[i]; s.n > n-recentSlots && s.n <= n {
			sum = sum.Plus(s.sum)
		}
	}
	return sum
}
