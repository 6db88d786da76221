package grammar

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
)

// tokenSet is a set of token ids: a bitset, or a list if that is smaller.
type tokenSet struct {
	bits []uint64
	ids  []uint32
}

func newTokenSet(ids []uint32, words int) *tokenSet {
	if len(ids) < 2*words {
		return &tokenSet{ids: slices.Clone(ids)}
	}
	t := &tokenSet{bits: make([]uint64, words)}
	for _, id := range ids {
		t.bits[id/64] |= 1 << (id % 64)
	}
	return t
}

// or adds the set to a mask.
func (t *tokenSet) or(mask []uint64) {
	if t.bits != nil {
		mask = mask[:len(t.bits)]
		for i, w := range t.bits {
			mask[i] |= w
		}
	}
	for _, id := range t.ids {
		mask[id/64] |= 1 << (id % 64)
	}
}

// cost returns the cost of or, in steps of a walk.
func (t *tokenSet) cost() int { return 1 + (len(t.bits)+len(t.ids))/64 }

func (t *tokenSet) equal(o *tokenSet) bool {
	return slices.Equal(t.bits, o.bits) && slices.Equal(t.ids, o.ids)
}

func (t *tokenSet) size() int { return 64 + 8*len(t.bits) + 4*len(t.ids) }

func (t *tokenSet) hash(seed maphash.Seed) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	var b [8]byte
	for _, w := range t.bits {
		binary.LittleEndian.PutUint64(b[:], w)
		h.Write(b[:])
	}
	for _, id := range t.ids {
		binary.LittleEndian.PutUint32(b[:], id)
		h.Write(b[:4])
	}
	return h.Sum64()
}

// ends is a sorted set of trie nodes: the places inside tokens at which a rule can end.
// The tokens below such a node depend on what follows the rule. nil is the empty set.
type ends struct{ nodes []int32 }

func (e *ends) size() int { return 48 + 4*len(e.nodes) }

func (e *ends) hash(seed maphash.Seed) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	var b [4]byte
	for _, n := range e.nodes {
		binary.LittleEndian.PutUint32(b[:], uint32(n))
		h.Write(b[:])
	}
	return h.Sum64()
}

// fit is the contribution of a state, or of a state together with a set of ends, to a
// mask.
type fit struct {
	tokens  *tokenSet
	ends    *ends
	partial bool // incomplete: finding more would have taken too long
}
