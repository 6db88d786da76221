package kvindex

import (
	"slices"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Overlap counts the leading blocks of a prompt that a worker holds without a gap, each
// by the fastest tier that has it.
type Overlap struct {
	Worker cluster.InstanceID
	Blocks [numTiers]int
}

// Total returns the length of the overlap.
func (o Overlap) Total() int { return o.Blocks[Device] + o.Blocks[Host] + o.Blocks[Disk] }

// Match is the answer to a lookup. Its memory is reused by the next lookup into it.
type Match struct {
	// Overlaps has one entry for each worker with at least the first block, in no order.
	Overlaps []Overlap
	alive    []running // workers without a gap so far, by number
	next     []running
	probes   [2]probes
	lines    [batchSize]*bucket
}

// running is a worker that holds all blocks so far.
type running struct {
	number uint32
	tier   Tier // of the last block
	blocks [numTiers]int
}

// Lookup sets m to the overlaps of a prompt whose blocks have these sequence hashes. It
// reads as many blocks as the worker with the longest overlap has, and takes no locks.
// Blocks that are stored or removed meanwhile count or do not.
func (x *Index) Lookup(hashes []uint64, m *Match) {
	m.Overlaps, m.alive = m.Overlaps[:0], m.alive[:0]
	defer x.epochs.leave(x.epochs.enter())
	names, bounded, clock := *x.names.Load(), x.cfg.MaxBytes > 0, x.clock.Load()
	last, run := uint32(none), 0 // the current ref, and how many blocks in a row have it
	p, ahead := &m.probes[0], &m.probes[1]
	x.prepare(hashes[:min(len(hashes), lookupBatch)], ahead)
	for first := true; ahead.n > 0; {
		p, ahead = ahead, p
		hashes = hashes[p.n:]
		p.overflow(&m.lines)
		x.prepare(hashes[:min(len(hashes), lookupBatch)], ahead)
		moves := x.moves.Load()
		for i := range p.n {
			r, at := x.read(p, i, moves)
			if bounded && r != none {
				at.found(clock)
			}
			if r == last && r != none {
				run++
				continue
			}
			m.count(run)
			if last, run = r, 1; !m.narrow(r, x.sets.members(r), first, names) {
				return
			}
			first = false
		}
	}
	m.count(run)
	for i := range m.alive {
		m.finish(&m.alive[i], names)
	}
}

// lookupBatch is the number of blocks that a lookup asks for ahead of those that it reads.
const lookupBatch = 32

// read returns the ref of a block and its slot. There were that many moves when the batch
// began.
func (x *Index) read(p *probes, i int, moves uint64) (r uint32, at slot) {
	key := p.keys[i]
	at, ok := p.tables[i].find(p.buckets[i], p.mixed[i], key)
	if !ok {
		if at, ok = x.again(p, i, moves); !ok {
			return none, at
		}
	}
	if r = at.ref(); !at.still(key) {
		return none, at
	}
	return r, at
}

// again looks again for a block: one that a writer moves nearer to its home may be in
// neither place for a reader that looks in both meanwhile.
func (x *Index) again(p *probes, i int, moves uint64) (at slot, ok bool) {
	for range mostMoves {
		now := x.moves.Load()
		if now == moves {
			break
		}
		moves = now
		if at, ok = p.tables[i].find(p.buckets[i], p.mixed[i], p.keys[i]); ok {
			break
		}
	}
	return at, ok
}

// mostMoves bounds how often a reader looks again. Writers would have to move blocks each
// time.
const mostMoves = 100

// count adds a run of blocks to the workers that hold them.
func (m *Match) count(run int) {
	for i := range m.alive {
		m.alive[i].blocks[m.alive[i].tier] += run
	}
}

// narrow leaves those alive that hold the next block, too, and finishes the others. It
// returns false when none is left.
func (m *Match) narrow(r uint32, members []holder, first bool, names []cluster.InstanceID) bool {
	var one [1]holder
	if r != none && r&setBit == 0 {
		one[0] = r - 1
		members = one[:]
	}
	m.next = m.next[:0]
	at := 0
	for i := 0; i < len(members); i++ {
		number, tier := members[i]>>2, Tier(members[i]&3)
		if i > 0 && members[i-1]>>2 == number {
			continue // a slower tier has it, too
		}
		if first {
			m.next = append(m.next, running{number: number, tier: tier})
			continue
		}
		for at < len(m.alive) && m.alive[at].number < number {
			m.finish(&m.alive[at], names)
			at++
		}
		if at < len(m.alive) && m.alive[at].number == number {
			w := m.alive[at]
			w.tier = tier
			m.next = append(m.next, w)
			at++
		}
	}
	for ; at < len(m.alive); at++ {
		m.finish(&m.alive[at], names)
	}
	m.alive, m.next = m.next, m.alive
	return len(m.alive) > 0
}

func (m *Match) finish(w *running, names []cluster.InstanceID) {
	if int(w.number) < len(names) { // else it came after the lookup began
		m.Overlaps = append(m.Overlaps, Overlap{names[w.number], w.blocks})
	}
}

// Find returns the overlap of one worker.
func (m *Match) Find(id cluster.InstanceID) Overlap {
	if i := slices.IndexFunc(m.Overlaps, func(o Overlap) bool { return o.Worker == id }); i >= 0 {
		return m.Overlaps[i]
	}
	return Overlap{Worker: id}
}
