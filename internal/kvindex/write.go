package kvindex

import "github.com/dynctl/dynctl/internal/cluster"

// batchSize is the number of blocks after which a long call lets other writers have their
// turn.
const batchSize = 64

// Store records that a worker has these blocks, by sequence hash, in a tier. Blocks that
// it has there already change nothing.
func (x *Index) Store(id cluster.InstanceID, tier Tier, hashes []uint64) {
	for len(hashes) > 0 {
		part := hashes[:min(len(hashes), batchSize)]
		hashes = hashes[len(part):]
		x.storeBatch(id, tier, part)
	}
}

func (x *Index) storeBatch(id cluster.InstanceID, tier Tier, hashes []uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	w := x.workers[id]
	if w == nil {
		w = x.add(id)
	}
	x.grow()
	w.tiers[tier].ask()
	h := w.holder(tier)
	c := transition{sets: &x.sets, change: x.sets.with, holder: h}
	changed := x.changed[:0]
	x.begin(&x.window, hashes)
	for i, hash := range hashes {
		if i%groupSize == 0 {
			x.advance(&x.window, hashes, i, false)
		}
		t, key := x.window.tables[i%windowSize], nonzero(hash)
		mixed := x.mix(key)
		at, ok := t.find(x.window.buckets[i%windowSize], mixed, key)
		switch {
		case !ok:
			t.add(mixed, key, h+1)
			x.live[partOf(mixed)]++
		case x.sets.contains(at.ref(), h):
			continue
		default:
			at.setRef(c.next(at.ref()))
		}
		changed = append(changed, hash)
	}
	c.end()
	x.held += len(changed)
	w.tiers[tier].append(changed)
	if x.cfg.MaxBytes > 0 {
		x.bound()
	}
}

// grow makes room in every table for a batch, so that no table changes during one.
func (x *Index) grow() {
	for part, live := range x.live {
		if live+batchSize > x.tables[part].Load().most {
			x.resize(part)
		}
	}
}

// shrink makes tables smaller that lost most of their blocks.
func (x *Index) shrink() {
	for part, live := range x.live {
		if live < x.tables[part].Load().least {
			x.resize(part)
		}
	}
}

// Remove records that a worker has lost these blocks in a tier.
func (x *Index) Remove(id cluster.InstanceID, tier Tier, hashes []uint64) {
	for len(hashes) > 0 {
		part := hashes[:min(len(hashes), batchSize)]
		hashes = hashes[len(part):]
		x.mu.Lock()
		if w := x.workers[id]; w != nil {
			askTail(w.tiers[tier].removed)
			w.tiers[tier].remove(x.removeBatch(w.holder(tier), part), &x.gone)
		}
		x.mu.Unlock()
	}
}

// removeBatch takes a holder from blocks and returns those that it had, until the next
// batch.
func (x *Index) removeBatch(h holder, hashes []uint64) (had []uint64) {
	c := transition{sets: &x.sets, change: x.sets.without, holder: h}
	had = x.changed[:0]
	x.begin(&x.window, hashes)
	for i, hash := range hashes {
		if i%groupSize == 0 {
			x.advance(&x.window, hashes, i, true)
		}
		t, key := x.window.tables[i%windowSize], nonzero(hash)
		mixed := x.mix(key)
		at, ok := t.find(x.window.buckets[i%windowSize], mixed, key)
		switch {
		case !ok || !x.sets.contains(at.ref(), h):
			continue
		case at.ref() == h+1:
			x.remove(t, mixed, at)
		default:
			at.setRef(c.next(at.ref()))
		}
		had = append(had, hash)
	}
	c.end()
	x.held -= len(had)
	x.shrink()
	return had
}

// transition changes the holders of blocks. It remembers the last change, because
// consecutive blocks mostly have the same holders.
type transition struct {
	sets     *sets
	change   func(uint32, holder) uint32
	holder   holder
	from, to uint32
	known    bool
}

// next returns the ref that takes the place of a block's ref, with its use; the use of
// the old one ends.
func (c *transition) next(from uint32) uint32 {
	if !c.known || c.from != from {
		c.end()
		c.sets.hold(from) // so that its id means the same while c remembers it
		c.from, c.to, c.known = from, c.change(from, c.holder), true
	}
	c.sets.hold(c.to)
	c.sets.release(from)
	return c.to
}

func (c *transition) end() {
	if c.known {
		c.sets.release(c.from)
		c.sets.release(c.to)
		c.known = false
	}
}
