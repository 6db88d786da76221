package kvindex

import (
	"slices"
	"sync/atomic"
)

// A holder is a worker's number and a tier: number<<2 | tier.
type holder = uint32

// A ref says who holds a block: none; a holder, plus 1; or, with bit 31 set, the id of a
// set of holders. Consecutive blocks of a prompt mostly have the same holders and, because
// equal sets are one set, the same ref.
const (
	none   = 0
	setBit = 1 << 31
)

// set is an immutable set of at least two holders, sorted.
type set struct {
	members []holder
	hash    uint64
	id      uint32
	uses    int // by slots and transitions
}

// sets holds every set once. Writers use it in turn; readers call get and nothing else.
type sets struct {
	byID   atomic.Pointer[[]*setChunk] // grows only
	_      [64]byte                    // readers use no more
	byHash map[uint64][]*set
	ids    recycler
	epochs *epochs
	bytes  int64
}

type setChunk [1024]atomic.Pointer[set]

// setOverhead is about what a set costs beside its members, in bytes.
const setOverhead = 112

func (ss *sets) get(r uint32) *set {
	id := r &^ setBit
	return (*ss.byID.Load())[id/1024][id%1024].Load()
}

// members returns the holders of a ref to a set, and nothing for other refs.
func (ss *sets) members(r uint32) []holder {
	if r&setBit == 0 {
		return nil
	}
	return ss.get(r).members
}

// memberHash is the part of one member in the hash of a set.
func memberHash(h holder) uint64 {
	x := (uint64(h) + 1) * 0x9e3779b97f4a7c15
	x = (x ^ x>>32) * 0xd6e8feb86659fd93
	return x ^ x>>32
}

// contains reports whether h is among the holders of r.
func (ss *sets) contains(r uint32, h holder) bool {
	if r&setBit == 0 {
		return r == h+1
	}
	_, ok := slices.BinarySearch(ss.get(r).members, h)
	return ok
}

// with returns the ref of r's holders and h, which is not among them. It counts one use
// of the result.
func (ss *sets) with(r uint32, h holder) uint32 {
	switch {
	case r == none:
		return h + 1
	case r&setBit == 0:
		return ss.intern(memberHash(r-1)^memberHash(h), []holder{min(r-1, h), max(r-1, h)})
	}
	s := ss.get(r)
	at, _ := slices.BinarySearch(s.members, h)
	return ss.intern(s.hash^memberHash(h), slices.Concat(s.members[:at], []holder{h}, s.members[at:]))
}

// without returns the ref of r's holders less h, which is among them. It counts one use
// of the result.
func (ss *sets) without(r uint32, h holder) uint32 {
	if r&setBit == 0 {
		return none
	}
	s := ss.get(r)
	at, _ := slices.BinarySearch(s.members, h)
	if len(s.members) == 2 {
		return s.members[1-at] + 1
	}
	return ss.intern(s.hash^memberHash(h), slices.Concat(s.members[:at], s.members[at+1:]))
}

// intern returns the set of these members.
func (ss *sets) intern(hash uint64, members []holder) uint32 {
	for _, have := range ss.byHash[hash] {
		if slices.Equal(have.members, members) {
			have.uses++
			return have.id | setBit
		}
	}
	s := &set{members: members, hash: hash, id: ss.ids.take(), uses: 1}
	ss.byHash[hash] = append(ss.byHash[hash], s)
	ss.bytes += setOverhead + 4*int64(len(members))
	chunks := *ss.byID.Load()
	if int(s.id/1024) == len(chunks) {
		chunks = append(slices.Clone(chunks), new(setChunk))
		ss.byID.Store(&chunks)
	}
	chunks[s.id/1024][s.id%1024].Store(s)
	return s.id | setBit
}

// hold counts one more use of r.
func (ss *sets) hold(r uint32) {
	if r&setBit != 0 {
		ss.get(r).uses++
	}
}

// release ends a use of r.
func (ss *sets) release(r uint32) {
	if r&setBit == 0 {
		return
	}
	s := ss.get(r)
	if s.uses--; s.uses > 0 {
		return
	}
	at := slices.Index(ss.byHash[s.hash], s)
	if rest := slices.Delete(ss.byHash[s.hash], at, at+1); len(rest) > 0 {
		ss.byHash[s.hash] = rest
	} else {
		delete(ss.byHash, s.hash)
	}
	ss.bytes -= setOverhead + 4*int64(len(s.members))
	ss.ids.give(s.id, ss.epochs)
}
