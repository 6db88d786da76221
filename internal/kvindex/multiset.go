package kvindex

import "math/bits"

// multiset is an open hash table of hashes in which equal ones take several slots. Its
// memory is used again and again.
type multiset struct {
	seed  uint64
	slots []uint64 // scrambled; slotFree and slotTaken are none
}

const (
	slotFree  = 0
	slotTaken = 1 // searches pass it
)

// scramble spreads hashes. No two become equal but for the marks of slots.
func (m *multiset) scramble(hash uint64) uint64 {
	return max((hash^m.seed)*0x9e3779b97f4a7c15, slotTaken+1)
}

// home returns where the search for a scrambled hash begins.
func (m *multiset) home(scrambled uint64) int {
	hi, _ := bits.Mul64(scrambled, uint64(len(m.slots)))
	return int(hi)
}

func (m *multiset) next(i int) int {
	if i++; i < len(m.slots) {
		return i
	}
	return 0
}

// reset makes the set hold these.
func (m *multiset) reset(hashes []uint64) {
	n := 3 * len(hashes)
	if cap(m.slots) < n {
		m.slots = make([]uint64, n)
	}
	m.slots = m.slots[:n]
	clear(m.slots)
	for _, h := range hashes {
		s := m.scramble(h)
		i := m.home(s)
		for m.slots[i] != slotFree {
			i = m.next(i)
		}
		m.slots[i] = s
	}
}

// take removes one of a hash and reports whether there was one.
func (m *multiset) take(hash uint64) bool {
	s := m.scramble(hash)
	for i := m.home(s); m.slots[i] != slotFree; i = m.next(i) {
		if m.slots[i] == s {
			m.slots[i] = slotTaken
			return true
		}
	}
	return false
}
