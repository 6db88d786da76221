package kvindex

import "unsafe"

// blockLog lists the blocks that a worker has in one tier, oldest first. It is what makes
// forgetting a worker cheap. A removed block stays in the list until a third of the list
// is such: less what is removed, the list is exact.
type blockLog struct {
	chunks  [][]uint64
	listed  int      // length of all chunks
	removed []uint64 // blocks that are listed once too often
}

const logChunk = 512 // blocks

func (l *blockLog) append(hashes []uint64) {
	l.listed += len(hashes)
	for len(hashes) > 0 {
		last := len(l.chunks) - 1
		if last < 0 || len(l.chunks[last]) == cap(l.chunks[last]) {
			l.chunks = append(l.chunks, make([]uint64, 0, l.room()))
			last++
		}
		c := l.chunks[last]
		n := min(len(hashes), cap(c)-len(c))
		l.chunks[last] = append(c, hashes[:n]...)
		hashes = hashes[n:]
	}
}

// ask requests the memory where the next batch is appended.
func (l *blockLog) ask() {
	if last := len(l.chunks) - 1; last >= 0 {
		askTail(l.chunks[last])
	}
}

// askTail requests the memory after a list that a batch fills.
func askTail(list []uint64) {
	free := list[len(list):cap(list)]
	for i := 0; i < min(len(free), batchSize); i += 8 {
		prefetch(unsafe.Pointer(&free[i]))
	}
}

// room returns the capacity of the next chunk: small workers take little.
func (l *blockLog) room() int { return min(logChunk, max(16, l.listed)) }

// live returns how many blocks the worker has.
func (l *blockLog) live() int { return l.listed - len(l.removed) }

func (l *blockLog) bytes() (n int64) {
	for _, c := range l.chunks {
		n += 8 * int64(cap(c))
	}
	return n + 8*int64(cap(l.removed))
}

// remove notes blocks that the worker has lost.
func (l *blockLog) remove(hashes []uint64, gone *multiset) {
	l.removed = append(l.removed, hashes...)
	if len(l.removed) > l.live()/2+batchSize {
		l.compact(gone)
	}
}

// compact takes the removed blocks out of the list. Of a block that was stored again, the
// oldest place goes.
func (l *blockLog) compact(gone *multiset) {
	if len(l.removed) == 0 {
		return
	}
	gone.reset(l.removed)
	l.removed = l.removed[:0]
	to, kept := 0, l.chunks[0][:0] // the list is written over itself
	l.listed = 0
	for _, c := range l.chunks {
		for _, hash := range c {
			if gone.take(hash) {
				continue
			}
			if len(kept) == cap(kept) {
				l.chunks[to] = kept
				to++
				kept = l.chunks[to][:0]
			}
			kept = append(kept, hash)
			l.listed++
		}
	}
	l.chunks[to] = kept
	clear(l.chunks[to+1:])
	l.chunks = l.chunks[:to+1]
}
