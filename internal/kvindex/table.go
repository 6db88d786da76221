package kvindex

import (
	"math/bits"
)

// The table is a hash table from sequence hashes to refs, in 16 parts, so that a writer does
// not wait long for one to grow, but parts of a large table still fill huge pages. One
// writer at a time changes it; readers look at any time.

// table is one part. Its fields do not change: a writer's counts beside them would cost
// readers on other cores a cache miss for each block.
type table struct {
	buckets []bucket
	least   int // with fewer blocks the table shrinks
	most    int // with more blocks it grows
}

const (
	numParts = 16
	// A table grows when this share of its slots is used, to a size that makes the share
	// freshLoad. It shrinks when freshLoad/2 is used.
	fullLoad, freshLoad = 0.7, 0.56
)

// newTable returns a table with room for a batch more than these blocks.
func newTable(live int) *table {
	n := int(float64(live+batchSize)/freshLoad/bucketSlots) + 1
	slots := bucketSlots * float64(n)
	t := &table{buckets: make([]bucket, n), most: int(slots * fullLoad), least: int(slots*freshLoad/2) - batchSize}
	useHugePages(t.buckets)
	return t
}

// mix spreads hashes over parts and buckets. The seed keeps a worker from choosing hashes
// that collide.
func (x *Index) mix(hash uint64) uint64 {
	m := (hash ^ x.seed) * 0x9e3779b97f4a7c15
	return m ^ m>>29
}

func partOf(mixed uint64) int { return int(mixed >> 60) }

// home returns the bucket where the probe for a hash begins.
func (t *table) home(mixed uint64) int {
	hi, _ := bits.Mul64(mixed<<4, uint64(len(t.buckets)))
	return int(hi)
}

// next returns the bucket after at, in a ring.
func (t *table) next(at int) int {
	if at++; at < len(t.buckets) {
		return at
	}
	return 0
}

// find returns the slot of a key, for any goroutine. The probe begins in bucket b. Without a
// slot, ok is false.
func (t *table) find(b *bucket, mixed, key uint64) (s slot, ok bool) {
	if i := b.look(key); i < bucketSlots {
		return slot{b, i}, true
	}
	for at := t.home(mixed); !b.ends(mixed); {
		at = t.next(at)
		b = &t.buckets[at]
		if i := b.look(key); i < bucketSlots {
			return slot{b, i}, true
		}
	}
	return slot{}, false
}

// add gives a slot to a key that has none.
func (t *table) add(mixed, key uint64, ref uint32) slot {
	at := t.home(mixed)
	for {
		b := &t.buckets[at]
		if i := b.look(0); i < bucketSlots {
			s := slot{b, i}
			s.fill(key, ref)
			return s
		}
		b.count(mixed, 1)
		at = t.next(at)
	}
}

// remove empties the slot of a key that nobody holds any more.
func (x *Index) remove(t *table, mixed uint64, s slot) {
	x.live[partOf(mixed)]--
	s.empty()
	at := t.home(mixed)
	for ; &t.buckets[at] != s.b; at = t.next(at) {
		t.buckets[at].count(mixed, -1)
	}
	x.takeBack(t, at, s)
}

// takeBack fills a slot that became empty with a block that stands in the next bucket for
// want of it, then fills that block's slot, and so on. Without this, more blocks would stand
// away from home, where lookups find them later.
func (x *Index) takeBack(t *table, at int, to slot) {
	for to.b.passed() {
		at = t.next(at)
		from := slot{&t.buckets[at], 0}
		mixed, ok := x.stray(t, at, &from)
		if !ok {
			break
		}
		to.fill(from.b.keys[from.i], from.ref())
		to.setHeat(from.heat())
		x.moves.Add(1)
		from.empty()
		to.b.count(mixed, -1)
		to = from
	}
	to.setHeat(0)
}

// stray finds a block of s's bucket, which is at, that belongs into an earlier one, and sets
// s to its slot.
func (x *Index) stray(t *table, at int, s *slot) (mixed uint64, ok bool) {
	for i, key := range s.b.keys {
		if mixed = x.mix(key); key != 0 && t.home(mixed) != at {
			s.i = uint(i)
			return mixed, true
		}
	}
	return 0, false
}

// resize gives a part a table that fits its blocks. Buckets keep their order, so that
// memory is read and written from one end to the other.
func (x *Index) resize(part int) *table {
	old := x.tables[part].Load()
	t := newTable(x.live[part])
	for i := range old.buckets {
		b := &old.buckets[i]
		for j, key := range b.keys {
			if key != 0 {
				t.add(x.mix(key), key, b.refs[j]).setHeat(slot{b, uint(j)}.heat())
			}
		}
	}
	x.buckets += len(t.buckets) - len(old.buckets)
	x.tables[part].Store(t)
	return t
}
