package kvindex

import (
	"math/bits"
	"sync/atomic"
)

const (
	bucketSlots = 5
	bucketBytes = 64
)

// bucket is a cache line of a table: five slots. A probe goes on to the next bucket while
// blocks that belong here stand further on.
type bucket struct {
	keys [bucketSlots]uint64 // sequence hashes; 0 means that the slot is empty
	refs [bucketSlots]uint32 // who holds the block, see ref
	meta uint32              // counts by class, then the heat of each slot, from the low bits up
}

const (
	// Counts say how many blocks stand further on whose probes pass the bucket. Each is for
	// a quarter of all hashes, so that few other probes pass it, too. A count that reaches
	// the maximum stays there until the table is resized.
	classes   = 4
	countBits = 3
	maxCount  = 1<<countBits - 1
	// heat is for bound.go.
	heatBits = 4
	maxHeat  = 1<<heatBits - 1
	heatFrom = classes * countBits
)

// look returns the slot of a key in the bucket, or bucketSlots. It does not branch for each
// slot, because which it is cannot be predicted, and after a wrong prediction the processor
// forgets the loads that it began. The compiler makes branches of comparisons.
func (b *bucket) look(key uint64) uint {
	others := differ(atomic.LoadUint64(&b.keys[0]), key) |
		differ(atomic.LoadUint64(&b.keys[1]), key)<<1 |
		differ(atomic.LoadUint64(&b.keys[2]), key)<<2 |
		differ(atomic.LoadUint64(&b.keys[3]), key)<<3 |
		differ(atomic.LoadUint64(&b.keys[4]), key)<<4
	return uint(bits.TrailingZeros64(^others))
}

// differ returns 1 for different numbers and 0 for equal ones.
func differ(a, b uint64) uint64 {
	d := a ^ b
	return (d | -d) >> 63
}

// class returns where the count for a hash begins.
func class(mixed uint64) uint64 { return mixed % classes * countBits }

// ends reports whether a probe that did not find its key in this bucket ends here.
func (b *bucket) ends(mixed uint64) bool {
	return atomic.LoadUint32(&b.meta)>>class(mixed)&maxCount == 0
}

// passed reports whether any probe may pass this bucket.
func (b *bucket) passed() bool { return atomic.LoadUint32(&b.meta)&(1<<heatFrom-1) != 0 }

// count adds one to the blocks that stand further on, or takes one away.
func (b *bucket) count(mixed uint64, change int32) {
	if !b.full(mixed) {
		atomic.AddUint32(&b.meta, uint32(change)<<class(mixed))
	}
}

// full reports whether a count has reached the maximum, so that it is no longer known.
func (b *bucket) full(mixed uint64) bool {
	return atomic.LoadUint32(&b.meta)>>class(mixed)&maxCount == maxCount
}

// slot is one place of a table.
type slot struct {
	b *bucket
	i uint
}

func (s slot) ref() uint32     { return atomic.LoadUint32(&s.b.refs[s.i]) }
func (s slot) setRef(r uint32) { storeRef(&s.b.refs[s.i], r) }

// still reports whether the slot belongs to this key. A reader asks it after it has loaded
// the ref, because the slot may have got another key meanwhile.
func (s slot) still(key uint64) bool { return atomic.LoadUint64(&s.b.keys[s.i]) == key }

// fill gives an empty slot to a key. The ref comes first: whoever finds the key finds it.
func (s slot) fill(key uint64, ref uint32) { publish(&s.b.keys[s.i], &s.b.refs[s.i], key, ref) }

func (s slot) empty() { storeKey(&s.b.keys[s.i], 0) }

func (s slot) heat() uint32 {
	return atomic.LoadUint32(&s.b.meta) >> (heatFrom + heatBits*s.i) & maxHeat
}

// setHeat may lose against a writer or reader of the same bucket: the next lookup brings
// what was lost.
func (s slot) setHeat(heat uint32) {
	shift := heatFrom + heatBits*s.i
	old := atomic.LoadUint32(&s.b.meta)
	if now := old&^(maxHeat<<shift) | heat<<shift; now != old {
		atomic.CompareAndSwapUint32(&s.b.meta, old, now)
	}
}
