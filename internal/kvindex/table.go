package kvindex

import (
	"math/bits"
	"sync/atomic"
)

// The table is a hash table from sequence hashes to refs, in 16 parts, so that a writer does
// not wait long for one to grow, but parts of a large table still fill huge pages. One
// writer at a time changes it; readers look at any time.

// bucket is a cache line of a table: four slots. A probe goes on to the next bucket while
// blocks that belong here stand further on.
type bucket struct {
	keys [4]uint64 // sequence hashes; 0 means that the slot is empty
	refs [4]uint32 // who holds the block, see ref
	heat [2]uint32 // 16 bits each: the clock when a lookup last found it, see bound.go
	over uint32    // blocks whose probes begin here or before, and end further on
	_    uint32
}

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
	fullLoad, freshLoad = 0.75, 0.6
)

// newTable returns a table with room for a batch more than these blocks.
func newTable(live int) *table {
	n := int(float64(live+batchSize)/freshLoad/4) + 1
	slots := 4 * float64(n)
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

// look returns the slot of a key in the bucket, or 4. It does not branch for each slot,
// because which it is cannot be predicted.
func (b *bucket) look(key uint64) int {
	at := 4
	if atomic.LoadUint64(&b.keys[3]) == key {
		at = 3
	}
	if atomic.LoadUint64(&b.keys[2]) == key {
		at = 2
	}
	if atomic.LoadUint64(&b.keys[1]) == key {
		at = 1
	}
	if atomic.LoadUint64(&b.keys[0]) == key {
		at = 0
	}
	return at
}

// ends reports whether a probe that did not find its key in this bucket ends here.
func (b *bucket) ends() bool { return atomic.LoadUint32(&b.over) == 0 }

// slot is one place of a table.
type slot struct {
	b *bucket
	i int
}

func (s slot) ref() uint32     { return atomic.LoadUint32(&s.b.refs[s.i]) }
func (s slot) setRef(r uint32) { atomic.StoreUint32(&s.b.refs[s.i], r) }

// still reports whether the slot belongs to this key. A reader asks it after it has loaded
// the ref, because the slot may have got another key meanwhile.
func (s slot) still(key uint64) bool { return atomic.LoadUint64(&s.b.keys[s.i]) == key }

// fill gives an empty slot to a key. The ref comes first: whoever finds the key finds it.
func (s slot) fill(key uint64, ref uint32) {
	s.setRef(ref)
	atomic.StoreUint64(&s.b.keys[s.i], key)
}

func (s slot) empty() { atomic.StoreUint64(&s.b.keys[s.i], 0) }

// find returns the slot of a key; ok is false if it has none. The probe begins in bucket b,
// which is the home of this hash. Any goroutine may call it.
func (t *table) find(b *bucket, mixed, key uint64) (s slot, ok bool) {
	if i := b.look(key); i < 4 {
		return slot{b, i}, true
	}
	if b.ends() {
		return slot{}, false
	}
	return t.findFrom(t.next(t.home(mixed)), key)
}

func (t *table) findFrom(at int, key uint64) (s slot, ok bool) {
	for {
		b := &t.buckets[at]
		if i := b.look(key); i < 4 {
			return slot{b, i}, true
		}
		if b.ends() {
			return slot{}, false
		}
		at = t.next(at)
	}
}

// add gives a slot to a key that has none.
func (t *table) add(mixed, key uint64, ref uint32) slot {
	at := t.home(mixed)
	for {
		b := &t.buckets[at]
		if i := b.look(0); i < 4 {
			s := slot{b, i}
			s.fill(key, ref)
			return s
		}
		atomic.StoreUint32(&b.over, b.over+1)
		at = t.next(at)
	}
}

// remove empties the slot of a key that nobody holds any more.
func (x *Index) remove(t *table, mixed uint64, s slot) {
	x.live[partOf(mixed)]--
	s.empty()
	at := t.home(mixed)
	for ; &t.buckets[at] != s.b; at = t.next(at) {
		atomic.StoreUint32(&t.buckets[at].over, t.buckets[at].over-1)
	}
	if s.b.over > 0 {
		x.takeBack(t, at, s.i)
	}
}

// takeBack fills a slot that became empty with a block that stands further on for want of
// it, then fills that block's slot, and so on. Without this, more and more blocks would
// stand away from home.
func (x *Index) takeBack(t *table, to, i int) {
	for t.buckets[to].over > 0 {
		from, j := t.displaced(x, to)
		source := slot{&t.buckets[from], j}
		back := slot{&t.buckets[to], i}
		back.fill(source.b.keys[j], source.ref())
		back.setHeat(source.heat())
		x.moves.Add(1)
		source.empty()
		for at := to; at != from; at = t.next(at) {
			atomic.StoreUint32(&t.buckets[at].over, t.buckets[at].over-1)
		}
		to, i = from, j
	}
}

// displaced returns the slot of a block whose probe passes a bucket: there is one.
func (t *table) displaced(x *Index, bucket int) (at, i int) {
	n := len(t.buckets)
	for at = t.next(bucket); ; at = t.next(at) {
		for i, key := range t.buckets[at].keys {
			if key == 0 {
				continue
			}
			if home := t.home(x.mix(key)); distance(home, at, n) >= distance(bucket, at, n) {
				return at, i
			}
		}
	}
}

// distance counts the steps between two buckets in a ring of n.
func distance(from, to, n int) int {
	if to -= from; to < 0 {
		to += n
	}
	return to
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
				t.add(x.mix(key), key, b.refs[j]).setHeat(slot{b, j}.heat())
			}
		}
	}
	x.buckets += len(t.buckets) - len(old.buckets)
	x.tables[part].Store(t)
	return t
}
