package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/cluster"
)

// ErrNoBlocks is returned when the pool cannot provide the blocks asked for, even
// by evicting everything that is cached.
var ErrNoBlocks = errors.New("not enough free KV blocks")

// KVSink receives the hashes that the prefix cache gained and lost. The scheduler's
// goroutine calls it, so it must not block.
type KVSink interface {
	Stored(parent *uint64, start int, blocks []cluster.KVStoredBlock)
	Removed(hashes []uint64, reason string)
	Cleared(blocks int)
}

// BlockPool accounts for the KV blocks of one worker. Every block is in exactly one
// state: free, active (referenced by a sequence), cached (unreferenced but findable by
// its hash), incoming (reserved for a remote write), outgoing (held only for a remote
// transfer) or quarantined (a remote peer may still write to it).
//
// The pool does no locking and holds no KV memory. Only the scheduler's goroutine uses
// it.
type BlockPool struct {
	blocks []block
	free   []int32          // stack of free ids
	byHash map[uint64]int32 // sequence hash -> block that holds it
	lru    lruList          // cached blocks, least recently used first
	sink   KVSink

	active, incoming, outgoing, quarantined int
	evicted                                 uint64
}

type block struct {
	refs     int32 // sequences that use it
	holds    int32 // remote transfers that read it
	state    blockState
	hashed   bool // findable in byHash under hash
	hash     uint64
	prev, nx int32 // LRU links, valid while cached
}

type blockState uint8

const (
	blockFree blockState = iota
	blockActive
	blockCached
	blockIncoming
	blockOutgoing
	blockQuarantined
)

func (s blockState) String() string {
	return [...]string{"free", "active", "cached", "incoming", "outgoing", "quarantined"}[s]
}

// NewBlockPool returns a pool of n free blocks; sink may be nil.
func NewBlockPool(n int, sink KVSink) *BlockPool {
	p := &BlockPool{
		blocks: make([]block, n),
		free:   make([]int32, n),
		byHash: make(map[uint64]int32),
		lru:    lruList{head: -1, tail: -1},
		sink:   sink,
	}
	for i := range p.free {
		p.free[i] = int32(n - 1 - i) // low ids first
	}
	return p
}

// Total returns the number of blocks.
func (p *BlockPool) Total() int { return len(p.blocks) }

// Available returns how many blocks Acquire could allocate now: free blocks, and cached
// blocks that it may evict.
func (p *BlockPool) Available() int { return len(p.free) + p.lru.n }

// Match returns how many leading hashes are in the cache or in use.
func (p *BlockPool) Match(hashes []uint64) int {
	for i, h := range hashes {
		if _, ok := p.byHash[h]; !ok {
			return i
		}
	}
	return len(hashes)
}

// pinnedByMatch returns how many of the matched blocks are cached. Using them makes them
// unavailable for allocation.
func (p *BlockPool) pinnedByMatch(hashes []uint64) int {
	n := 0
	for _, h := range hashes {
		if p.blocks[p.byHash[h]].state == blockCached {
			n++
		}
	}
	return n
}

// exclusive returns how many blocks become available when each loses one reference.
func (p *BlockPool) exclusive(ids []int32) (n int) {
	for _, id := range ids {
		if b := &p.blocks[id]; b.refs == 1 && b.state == blockActive {
			n++
		}
	}
	return n
}

// Acquire takes references on the blocks that hold the leading matched hashes, and
// allocates as many more blocks as fresh says. It fails with ErrNoBlocks and then changes
// nothing.
func (p *BlockPool) Acquire(matched []uint64, fresh int) ([]int32, error) {
	if p.Available()-p.pinnedByMatch(matched) < fresh {
		return nil, ErrNoBlocks
	}
	ids := make([]int32, 0, len(matched)+fresh)
	for _, h := range matched {
		id := p.byHash[h]
		p.ref(id)
		ids = append(ids, id)
	}
	var gone []uint64
	for range fresh {
		id, evicted, wasCached := p.take()
		if wasCached {
			gone = append(gone, evicted)
		}
		p.ref(id)
		ids = append(ids, id)
	}
	if len(gone) > 0 && p.sink != nil {
		p.sink.Removed(gone, "lru")
	}
	return ids, nil
}

// take removes one block from the free list. If that is empty, it evicts the least
// recently used cached block. The caller has checked Available.
func (p *BlockPool) take() (id int32, hash uint64, evicted bool) {
	if n := len(p.free); n > 0 {
		id = p.free[n-1]
		p.free = p.free[:n-1]
		return id, 0, false
	}
	id = p.lru.head
	b := &p.blocks[id]
	p.lru.remove(p.blocks, id)
	hash = b.hash
	delete(p.byHash, hash)
	b.hashed, b.state = false, blockFree
	p.evicted++
	return id, hash, true
}

func (p *BlockPool) ref(id int32) {
	p.blocks[id].refs++
	p.settle(id)
}

// settle moves a block into the state that its counts of references and holds imply.
// Incoming and quarantined blocks keep their state until Land.
func (p *BlockPool) settle(id int32) {
	b := &p.blocks[id]
	if b.state == blockIncoming || b.state == blockQuarantined {
		return
	}
	next := blockFree
	switch {
	case b.refs > 0:
		next = blockActive
	case b.holds > 0:
		next = blockOutgoing
	case b.hashed:
		next = blockCached
	}
	p.move(id, next)
}

func (p *BlockPool) move(id int32, next blockState) {
	b := &p.blocks[id]
	if b.state == next {
		return
	}
	p.count(b.state, -1)
	if b.state == blockCached {
		p.lru.remove(p.blocks, id)
	}
	b.state = next
	p.count(next, +1)
	switch next {
	case blockCached:
		p.lru.push(p.blocks, id)
	case blockFree:
		p.free = append(p.free, id)
	}
}

func (p *BlockPool) count(s blockState, d int) {
	switch s {
	case blockActive:
		p.active += d
	case blockIncoming:
		p.incoming += d
	case blockOutgoing:
		p.outgoing += d
	case blockQuarantined:
		p.quarantined += d
	}
}

// Release drops one reference on each block. The last blocks of a prompt become
// the first to be evicted, so that prefixes live longer than their tails.
func (p *BlockPool) Release(ids []int32) {
	for i := len(ids) - 1; i >= 0; i-- {
		b := &p.blocks[ids[i]]
		if b.refs == 0 {
			panic(fmt.Sprintf("block pool: release of block %d (%s) without a reference", ids[i], b.state))
		}
		b.refs--
		p.settle(ids[i])
	}
}

// Register makes the full blocks from..to-1 of a block table findable under the hashes of
// chain. If another block already has a hash, that block stays findable, and the block of
// the table remains private.
func (p *BlockPool) Register(table []int32, chain *blockhash.Chain, from, to int) {
	var run []cluster.KVStoredBlock
	flush := func(end int) {
		if len(run) == 0 || p.sink == nil {
			run = nil
			return
		}
		start := end - len(run)
		var parent *uint64
		if start > 0 {
			parent = &chain.Seq[start-1]
		}
		p.sink.Stored(parent, start, run)
		run = nil
	}
	for i := from; i < to; i++ {
		b := &p.blocks[table[i]]
		hash := chain.Seq[i]
		if _, taken := p.byHash[hash]; taken || b.hashed {
			flush(i)
			continue
		}
		b.hash, b.hashed = hash, true
		p.byHash[hash] = table[i]
		run = append(run, cluster.KVStoredBlock{BlockHash: hash, TokensHash: chain.Local[i]})
	}
	flush(to)
}

// Hold keeps blocks readable for a remote transfer after their last reference is
// released.
func (p *BlockPool) Hold(ids []int32) {
	for _, id := range ids {
		p.blocks[id].holds++
		p.settle(id)
	}
}

// Unhold undoes one Hold.
func (p *BlockPool) Unhold(ids []int32) {
	for i := len(ids) - 1; i >= 0; i-- {
		b := &p.blocks[ids[i]]
		if b.holds == 0 {
			panic(fmt.Sprintf("block pool: unhold of block %d (%s) without a hold", ids[i], b.state))
		}
		b.holds--
		p.settle(ids[i])
	}
}

// MarkIncoming turns freshly acquired blocks into incoming ones.
func (p *BlockPool) MarkIncoming(ids []int32) {
	for _, id := range ids {
		p.move(id, blockIncoming)
	}
}

// Land ends the incoming or quarantined state of blocks. Their references and holds then
// determine their state.
func (p *BlockPool) Land(ids []int32) {
	for i := len(ids) - 1; i >= 0; i-- {
		b := &p.blocks[ids[i]]
		if b.state != blockIncoming && b.state != blockQuarantined {
			panic(fmt.Sprintf("block pool: block %d landed while %s", ids[i], b.state))
		}
		// Through active, so that settle may choose freely.
		p.move(ids[i], blockActive)
		p.settle(ids[i])
	}
}

// Quarantine turns incoming blocks into quarantined ones. They are not reused before
// Land, even when no reference is left.
func (p *BlockPool) Quarantine(ids []int32) {
	for _, id := range ids {
		p.move(id, blockQuarantined)
	}
}

// Clear removes all blocks from the prefix cache. Blocks in use stay in use but are no
// longer findable. It returns the number of hashes removed.
func (p *BlockPool) Clear() int {
	n := len(p.byHash)
	for _, id := range p.byHash {
		p.blocks[id].hashed = false
		p.settle(id)
	}
	clear(p.byHash)
	if p.sink != nil && n > 0 {
		p.sink.Cleared(n)
	}
	return n
}

// Resident returns the hashes of all findable blocks.
func (p *BlockPool) Resident() []uint64 { return slices.Collect(maps.Keys(p.byHash)) }

// PoolCounts holds the number of blocks in each state; the sum is Total.
type PoolCounts struct {
	Total, Free, Active, Cached, Incoming, Outgoing, Quarantined int
}

// Counts returns the current number of blocks in each state.
func (p *BlockPool) Counts() PoolCounts {
	return PoolCounts{
		Total: len(p.blocks), Free: len(p.free), Active: p.active, Cached: p.lru.n,
		Incoming: p.incoming, Outgoing: p.outgoing, Quarantined: p.quarantined,
	}
}
