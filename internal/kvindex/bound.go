package kvindex

// Forgetting for want of memory goes through the lists of blocks, the longest list first
// and each from its oldest block. The algorithm is GCLOCK (Smith, "Sequentiality and
// prefetching in database systems", 1978): a lookup sets the heat of the blocks that it
// finds. Blocks with heat are passed over, lose one of it and go to the end of the list. A
// block that many workers hold is met in each one's list, so it gets more heat.

// heatOf returns the heat of a block with these holders that a lookup has found.
func heatOf(holders int) uint32 { return uint32(min(max(holders, 1), maxHeat)) }

// bound forgets blocks while the index is too large. It estimates the size when the
// tables are as full as after they were resized: forgetting frees their memory only then.
func (x *Index) bound() {
	if x.stored++; x.stored%boundEvery != 0 {
		return
	}
	for {
		size := int64(float64(bucketBytes*x.blocks())/bucketSlots/freshLoad) + 8*int64(x.held) + x.sets.bytes
		if size <= x.cfg.MaxBytes || !x.evict() {
			return
		}
	}
}

// boundEvery is the number of batches between two looks at the size.
const boundEvery = 64

// evict forgets about a chunk of the longest list. It returns false if there is none.
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
	log.compact(&x.gone)
	kept := make([]uint64, 0, logChunk)
	for forgotten := 0; forgotten < logChunk && len(log.chunks) > 0 && len(kept) < cap(kept); {
		c := log.chunks[0]
		log.chunks = log.chunks[1:]
		log.listed -= len(c)
		for len(c) > 0 {
			part := c[:min(batchSize, len(c))]
			c = c[len(part):]
			var cold []uint64
			for _, hash := range part {
				if len(kept) < cap(kept) && x.cool(hash) {
					kept = append(kept, hash)
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
	log.listed += len(kept)
	return true
}

// cool takes one of the heat of a block and reports whether it had any.
func (x *Index) cool(hash uint64) bool {
	key := nonzero(hash)
	mixed := x.mix(key)
	t := x.tables[partOf(mixed)].Load()
	at, ok := t.find(&t.buckets[t.home(mixed)], mixed, key)
	if !ok || at.heat() == 0 {
		return false
	}
	at.setHeat(at.heat() - 1)
	return true
}
