package kvindex

import (
	"math/bits"
	"slices"
)

// blockLog lists the blocks that a worker has in one tier, oldest first. It is what makes
// forgetting a worker cheap. A removed block stays in the list until a third of the list
// is such: less what is removed, the list is exact.
type blockLog struct {
	chunks  []chunk
	listed  int      // length of all chunks
	removed []uint64 // blocks that are listed once too often
}

type chunk struct {
	hashes []uint64 // at most logChunk
	born   uint32   // the index's clock at its start
}

const logChunk = 512

func (l *blockLog) append(hashes []uint64, clock uint32) {
	l.listed += len(hashes)
	for len(hashes) > 0 {
		last := len(l.chunks) - 1
		if last < 0 || len(l.chunks[last].hashes) == cap(l.chunks[last].hashes) {
			l.chunks = append(l.chunks, chunk{make([]uint64, 0, l.room()), clock})
			last++
		}
		c := &l.chunks[last]
		n := min(len(hashes), cap(c.hashes)-len(c.hashes))
		c.hashes = append(c.hashes, hashes[:n]...)
		hashes = hashes[n:]
	}
}

// room returns the capacity of the next chunk: small workers take little.
func (l *blockLog) room() int { return min(logChunk, max(16, l.listed)) }

// live returns how many blocks the worker has.
func (l *blockLog) live() int { return l.listed - len(l.removed) }

func (l *blockLog) bytes() (n int64) {
	for _, c := range l.chunks {
		n += 8 * int64(cap(c.hashes))
	}
	return n + 8*int64(cap(l.removed))
}

// remove notes blocks that the worker has lost.
func (l *blockLog) remove(hashes []uint64) {
	l.removed = append(l.removed, hashes...)
	if len(l.removed) > l.live()/2+logChunk {
		l.compact()
	}
}

// compact takes the removed blocks out of the list. Of a block that was stored again, the
// oldest place goes.
func (l *blockLog) compact() {
	if len(l.removed) == 0 {
		return
	}
	gone := newCounter(l.removed)
	kept := blockLog{chunks: make([]chunk, 0, len(l.chunks))}
	for _, c := range l.chunks {
		kept.append(slices.DeleteFunc(c.hashes, gone.take), c.born)
	}
	*l = kept
}

// counter is a multiset of hashes: an open hash table in which equal ones take several
// slots.
type counter struct {
	slots  []uint64
	states []slotState
}

type slotState uint8

const (
	slotFree slotState = iota
	slotUsed
	slotTaken // searches pass it
)

func newCounter(hashes []uint64) *counter {
	c := &counter{make([]uint64, 2*len(hashes)), make([]slotState, 2*len(hashes))}
	for _, h := range hashes {
		i := c.home(h)
		for c.states[i] != slotFree {
			i = c.next(i)
		}
		c.slots[i], c.states[i] = h, slotUsed
	}
	return c
}

// home is where the search for a hash begins.
func (c *counter) home(hash uint64) int {
	hi, _ := bits.Mul64(hash*0x9e3779b97f4a7c15, uint64(len(c.slots)))
	return int(hi)
}

func (c *counter) next(i int) int {
	if i++; i < len(c.slots) {
		return i
	}
	return 0
}

// take removes one of a hash and reports whether there was one.
func (c *counter) take(hash uint64) bool {
	for i := c.home(hash); c.states[i] != slotFree; i = c.next(i) {
		if c.slots[i] == hash && c.states[i] == slotUsed {
			c.states[i] = slotTaken
			return true
		}
	}
	return false
}
