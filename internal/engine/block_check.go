package engine

import "fmt"

// Check proves that the pool is consistent: every block is in exactly one state,
// the state agrees with the counts of references and holds, free and cached
// lists hold exactly the blocks of their state, and every findable hash points at
// a block that carries it. It is cheap enough to run after every test.
func (p *BlockPool) Check() error {
	seen := make([]blockState, len(p.blocks))
	mark := make([]bool, len(p.blocks))
	for _, id := range p.free {
		if mark[id] {
			return fmt.Errorf("block %d is twice in the free list", id)
		}
		mark[id], seen[id] = true, blockFree
	}
	n, last := 0, int32(-1)
	for id := p.lru.head; id >= 0; id = p.blocks[id].nx {
		if mark[id] {
			return fmt.Errorf("block %d is cached and in another list", id)
		}
		if p.blocks[id].prev != last {
			return fmt.Errorf("block %d: broken LRU link", id)
		}
		mark[id], seen[id], last = true, blockCached, id
		n++
	}
	if n != p.lru.n || last != p.lru.tail {
		return fmt.Errorf("LRU list has %d blocks, says %d", n, p.lru.n)
	}
	var got PoolCounts
	for id := range p.blocks {
		b := &p.blocks[id]
		if listed := b.state == blockFree || b.state == blockCached; listed != mark[id] || (listed && seen[id] != b.state) {
			return fmt.Errorf("block %d is %s but not listed so", id, b.state)
		}
		if b.refs < 0 || b.holds < 0 {
			return fmt.Errorf("block %d has %d references and %d holds", id, b.refs, b.holds)
		}
		if err := b.check(); err != nil {
			return fmt.Errorf("block %d: %w", id, err)
		}
		if b.hashed {
			if at, ok := p.byHash[b.hash]; !ok || at != int32(id) {
				return fmt.Errorf("block %d: its hash %x leads to block %d", id, b.hash, at)
			}
		}
		switch b.state {
		case blockFree:
			got.Free++
		case blockActive:
			got.Active++
		case blockCached:
			got.Cached++
		case blockIncoming:
			got.Incoming++
		case blockOutgoing:
			got.Outgoing++
		case blockQuarantined:
			got.Quarantined++
		}
	}
	got.Total = len(p.blocks)
	if want := p.Counts(); got != want {
		return fmt.Errorf("counted %+v, pool says %+v", got, want)
	}
	for h, id := range p.byHash {
		if b := p.blocks[id]; !b.hashed || b.hash != h {
			return fmt.Errorf("hash %x leads to block %d which does not carry it", h, id)
		}
	}
	return nil
}

func (b *block) check() error {
	switch b.state {
	case blockFree:
		if b.refs != 0 || b.holds != 0 || b.hashed {
			return fmt.Errorf("free with %d references, %d holds, hashed %t", b.refs, b.holds, b.hashed)
		}
	case blockActive:
		if b.refs == 0 {
			return fmt.Errorf("active without a reference")
		}
	case blockCached:
		if b.refs != 0 || b.holds != 0 || !b.hashed {
			return fmt.Errorf("cached with %d references, %d holds, hashed %t", b.refs, b.holds, b.hashed)
		}
	case blockOutgoing:
		if b.refs != 0 || b.holds == 0 {
			return fmt.Errorf("outgoing with %d references, %d holds", b.refs, b.holds)
		}
	case blockIncoming:
		if b.refs != 1 || b.hashed {
			return fmt.Errorf("incoming with %d references, hashed %t", b.refs, b.hashed)
		}
	case blockQuarantined:
		if b.hashed {
			return fmt.Errorf("quarantined but findable")
		}
	}
	return nil
}

// CheckIdle does what Check does and also requires that no block is in use: all blocks
// are free or cached. Tests call it when all requests have ended.
func (p *BlockPool) CheckIdle() error {
	if err := p.Check(); err != nil {
		return err
	}
	if c := p.Counts(); c.Free+c.Cached != c.Total {
		return fmt.Errorf("blocks leaked: %+v", c)
	}
	return nil
}
