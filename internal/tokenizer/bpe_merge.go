package tokenizer

import "math"

// noPair is the result of pairTable.get for a pair that it does not hold. It is larger
// than any merge, so the best merge is the smallest value.
const noPair = math.MaxUint64

// pairTable maps pairs of ids to a value, in one open-addressed table at most
// half full. For merges the value is rank<<32 | id of the joined token.
type pairTable struct {
	slots []pairSlot
	mask  uint64
}

type pairSlot struct{ key, value uint64 } // value noPair marks an empty slot

func newPairTable(n int) *pairTable {
	size := 16
	for size < 2*n {
		size *= 2
	}
	t := &pairTable{slots: make([]pairSlot, size), mask: uint64(size - 1)}
	for i := range t.slots {
		t.slots[i].value = noPair
	}
	return t
}

// set stores a pair. There must be no more pairs than newPairTable was told.
func (t *pairTable) set(a, b uint32, value uint64) {
	key := uint64(a)<<32 | uint64(b)
	for i := mix(key) & t.mask; ; i = (i + 1) & t.mask {
		if s := &t.slots[i]; s.value == noPair || s.key == key {
			*s = pairSlot{key, value}
			return
		}
	}
}

func (t *pairTable) get(a, b uint32) uint64 {
	key := uint64(a)<<32 | uint64(b)
	for i := mix(key) & t.mask; ; i = (i + 1) & t.mask {
		s := &t.slots[i]
		if s.key == key || s.value == noPair {
			return s.value
		}
	}
}

// scanLimit is the word length up to which looking for the best merge by
// scanning beats a heap.
const scanLimit = 32

// symbolBuf holds the symbols of one word while they are merged.
type symbolBuf struct {
	ids   []uint32
	pairs []uint64 // best merge at each position (short words), or the heap
	next  []int32  // linked list over ids (long words); -1 ends it
	prev  []int32
}

func (b *symbolBuf) reset() { b.ids = b.ids[:0] }

func (b *symbolBuf) trim() {
	if max(cap(b.ids), cap(b.pairs)) > keepScratch {
		*b = symbolBuf{}
	}
}

// merge joins neighboring symbols, always by the merge of lowest rank and the
// leftmost of equal ones, until none applies, and appends the result to dst.
func (b *symbolBuf) merge(merges *pairTable, dst []uint32) []uint32 {
	switch n := len(b.ids); {
	case n <= 1:
		return append(dst, b.ids...)
	case n <= scanLimit:
		return b.mergeShort(merges, dst)
	}
	return b.mergeLong(merges, dst)
}

func (b *symbolBuf) mergeShort(merges *pairTable, dst []uint32) []uint32 {
	ids := b.ids
	pairs := b.pairs[:0]
	for i := 1; i < len(ids); i++ {
		pairs = append(pairs, merges.get(ids[i-1], ids[i]))
	}
	b.pairs = pairs
	for len(pairs) > 0 {
		at, best := 0, pairs[0]>>32
		for i, p := range pairs {
			if p>>32 < best {
				at, best = i, p>>32
			}
		}
		joined := pairs[at]
		if joined == noPair {
			break
		}
		ids[at] = uint32(joined)
		ids = append(ids[:at+1], ids[at+2:]...)
		pairs = append(pairs[:at], pairs[at+1:]...)
		if at > 0 {
			pairs[at-1] = merges.get(ids[at-1], ids[at])
		}
		if at < len(pairs) {
			pairs[at] = merges.get(ids[at], ids[at+1])
		}
	}
	return append(dst, ids...)
}

// mergeLong keeps candidate merges in a heap, which makes long words n log n.
// A candidate is rank<<32 | position; one that no longer fits the symbols at
// its position is skipped when it comes up.
func (b *symbolBuf) mergeLong(merges *pairTable, dst []uint32) []uint32 {
	n := len(b.ids)
	ids := b.ids
	b.next, b.prev = sized(b.next, n), sized(b.prev, n)
	next, prev := b.next, b.prev
	heap := minHeap(b.pairs[:0])
	for i := range ids {
		next[i], prev[i] = int32(i+1), int32(i-1)
		if i+1 < n {
			if p := merges.get(ids[i], ids[i+1]); p != noPair {
				heap = append(heap, p&^math.MaxUint32|uint64(i))
			}
		}
	}
	next[n-1] = -1
	const gone = -2 // in prev: joined to its left neighbor
	heap.init()
	for len(heap) > 0 {
		top := heap.pop()
		i := int32(top & math.MaxUint32)
		if prev[i] == gone || next[i] < 0 {
			continue
		}
		right := next[i]
		joined := merges.get(ids[i], ids[right])
		if joined == noPair || joined>>32 != top>>32 {
			continue
		}
		ids[i] = uint32(joined)
		prev[right] = gone
		after := next[right]
		next[i] = after
		if after >= 0 {
			prev[after] = i
			if p := merges.get(ids[i], ids[after]); p != noPair {
				heap.push(p&^math.MaxUint32 | uint64(i))
			}
		}
		if before := prev[i]; before >= 0 {
			if p := merges.get(ids[before], ids[i]); p != noPair {
				heap.push(p&^math.MaxUint32 | uint64(before))
			}
		}
	}
	b.pairs = heap[:0]
	for i := int32(0); i >= 0; i = next[i] {
		dst = append(dst, ids[i])
	}
	return dst
}

func sized(s []int32, n int) []int32 {
	if cap(s) < n {
		return make([]int32, n)
	}
	return s[:n]
}

// minHeap is a binary heap of plain numbers; container/heap would cost an
// interface call per comparison.
type minHeap []uint64

func (h minHeap) init() {
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

func (h *minHeap) push(v uint64) {
	*h = append(*h, v)
	s := *h
	i := len(s) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if s[parent] <= v {
			break
		}
		s[i] = s[parent]
		i = parent
	}
	s[i] = v
}

func (h *minHeap) pop() uint64 {
	s := *h
	top := s[0]
	last := len(s) - 1
	s[0] = s[last]
	*h = s[:last]
	(*h).down(0)
	return top
}

func (h minHeap) down(i int) {
	if i >= len(h) {
		return
	}
	v := h[i]
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1] < h[child] {
			child++
		}
		if h[child] >= v {
			break
		}
		h[i] = h[child]
		i = child
	}
	h[i] = v
}
