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
	window   window
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
	names, bounded := *x.names.Load(), x.cfg.MaxBytes > 0
	last, run, heat := uint32(none), 0, uint32(0) // the current ref, and how many blocks in a row have it
	w := &m.window
	x.begin(w, hashes)
	for from := 0; from < len(hashes); from += groupSize {
		tables, homes := x.advance(w, hashes, from, false)
		for i, hash := range hashes[from:min(from+groupSize, len(hashes))] {
			key := nonzero(hash)
			r, at := uint32(none), slot{homes[i], homes[i].look(key)}
			if at.i < bucketSlots {
				r = at.ref()
			}
			if at.i >= bucketSlots || !at.still(key) {
				r, at = x.search(tables[i], homes[i], key)
			}
			if r != last || r == none {
				m.count(run)
				members := x.sets.members(r)
				if last, run, heat = r, 0, heatOf(len(members)); !m.narrow(r, members, from+i == 0, names) {
					return
				}
			}
			if run++; bounded {
				at.setHeat(heat)
			}
		}
	}
	m.count(run)
	for i := range m.alive {
		m.finish(&m.alive[i], names)
	}
}

// search finds the ref and the slot of a block for a reader. A block that a writer moves
// nearer to its home may be in neither place for a reader that looks in both meanwhile: it
// looks again.
func (x *Index) search(t *table, home *bucket, key uint64) (r uint32, at slot) {
	for range mostMoves {
		moves := x.moves.Load()
		at, ok := t.find(home, x.mix(key), key)
		if ok {
			if r = at.ref(); at.still(key) {
				return r, at
			}
		} else if x.moves.Load() == moves {
			break
		}
	}
	return none, slot{}
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
