package kvindex

import "unsafe"

// A call asks for the buckets of later blocks before it uses those of earlier ones, so that
// the processor waits for many at a time.
const (
	groupSize  = 8  // blocks asked for together
	askAhead   = 32 // blocks between the request for a bucket and its use
	nextAhead  = 8  // the same for the bucket after it, which few blocks need
	windowSize = 64
)

// window is where the probes of the next blocks begin.
type window struct {
	buckets [windowSize]*bucket
	tables  [windowSize]*table
}

// ask requests the buckets of the group of blocks that begins at from.
func (x *Index) ask(w *window, hashes []uint64, from int) {
	if from >= len(hashes) {
		return
	}
	buckets := (*[groupSize]*bucket)(w.buckets[from%windowSize:])
	tables := (*[groupSize]*table)(w.tables[from%windowSize:])
	for i := range groupSize {
		m := x.mix(nonzero(hashes[min(from+i, len(hashes)-1)]))
		t := x.tables[partOf(m)].Load()
		tables[i], buckets[i] = t, &t.buckets[t.home(m)]
	}
	prefetchAll(buckets)
}

// askNext requests the next buckets of blocks that may stand there, or of all whose removal
// could bring back a block from there.
func (x *Index) askNext(w *window, hashes []uint64, from int, remove bool) {
	for i := from; i < min(from+groupSize, len(hashes)); i++ {
		m, b := x.mix(nonzero(hashes[i])), w.buckets[i%windowSize]
		if !b.ends(m) || remove && b.passed() {
			t := w.tables[i%windowSize]
			prefetch(unsafe.Pointer(&t.buckets[t.next(t.home(m))]))
		}
	}
}

// begin fills a window.
func (x *Index) begin(w *window, hashes []uint64) {
	for from := 0; from < askAhead; from += groupSize {
		x.ask(w, hashes, from)
	}
}

// advance comes before the use of a group of blocks and keeps the window full. It returns
// where the probes of the group begin.
func (x *Index) advance(w *window, hashes []uint64, from int, remove bool) (*[groupSize]*table, *[groupSize]*bucket) {
	x.ask(w, hashes, from+askAhead)
	x.askNext(w, hashes, from+nextAhead, remove)
	from %= windowSize
	return (*[groupSize]*table)(w.tables[from:]), (*[groupSize]*bucket)(w.buckets[from:])
}

// nonzero replaces the hash that marks empty slots.
func nonzero(hash uint64) uint64 {
	if hash == 0 {
		return 1 << 63
	}
	return hash
}
