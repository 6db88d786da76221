package kvindex

import "sync/atomic"

// Forgetting for want of memory is the CLOCK algorithm over the lists of blocks: the
// oldest chunk of a list goes, but its blocks that a lookup has found since the chunk
// began go to the end of the list instead. The clock counts evictions.

// found notes that a lookup has found the block. Two slots share a word; a note that is
// lost to the other one comes with the next lookup.
func (s slot) found(clock uint32) {
	if s.heat() != uint16(clock)+1 {
		s.setHeat(uint16(clock) + 1)
	}
}

func (s slot) heat() uint16 {
	word, shift := s.heatWord()
	return uint16(atomic.LoadUint32(word) >> shift)
}

func (s slot) setHeat(heat uint16) {
	word, shift := s.heatWord()
	old := atomic.LoadUint32(word)
	if now := old&^(0xffff<<shift) | uint32(heat)<<shift; now != old {
		atomic.CompareAndSwapUint32(word, old, now)
	}
}

// heatWord returns the word with the slot's heat, and where it stands there.
func (s slot) heatWord() (word *uint32, shift int) {
	return &s.b.heat[s.i/2], s.i % 2 * 16
}

// bound forgets blocks while the index is too large. It estimates the size when the
// tables are as full as after they were resized: forgetting frees their memory only then.
func (x *Index) bound() {
	if x.stored++; x.stored%boundEvery != 0 {
		return
	}
	for {
		size := int64(float64(16*x.blocks())/freshLoad) + 8*int64(x.held) + x.sets.bytes
		if size <= x.cfg.MaxBytes || !x.evict() {
			return
		}
	}
}

// boundEvery is the number of batches between two looks at the size.
const boundEvery = 64

// evict forgets about a chunk of the largest list. It returns false if there is none.
func (x *Index) evict() bool {
	var h holder
	var log *blockLog
	for _, w := range x.workers {
		for t := range w.tiers {
			if l := &w.tiers[t]; l.live() > 0 && (log == nil || l.live() > log.live()) {
				h, log = w.holder(Tier(t)), l
			}
		}
	}
	if log == nil {
		return false
	}
	log.compact()
	kept := chunk{make([]uint64, 0, logChunk), x.clock.Add(1)}
	for forgotten := 0; forgotten < logChunk && len(log.chunks) > 0 && len(kept.hashes) < cap(kept.hashes); {
		c := log.chunks[0]
		log.chunks = log.chunks[1:]
		log.listed -= len(c.hashes)
		for len(c.hashes) > 0 {
			part := c.hashes[:min(batchSize, len(c.hashes))]
			c.hashes = c.hashes[len(part):]
			var cold []uint64
			for _, hash := range part {
				if len(kept.hashes) < cap(kept.hashes) && x.foundSince(hash, c.born) {
					kept.hashes = append(kept.hashes, hash)
				} else {
					cold = append(cold, hash)
				}
			}
			n := len(x.removeBatch(h, cold))
			forgotten += n
			x.evicted += uint64(n)
		}
	}
	log.chunks = append(log.chunks, kept)
	log.listed += len(kept.hashes)
	return true
}

// foundSince reports whether a lookup has found a block since then.
func (x *Index) foundSince(hash uint64, then uint32) bool {
	mixed := x.mix(nonzero(hash))
	t := x.tables[partOf(mixed)].Load()
	at, ok := t.find(&t.buckets[t.home(mixed)], mixed, nonzero(hash))
	return ok && int16(at.heat()-uint16(then)) > 0
}
