package grammar

import (
	"bytes"
	"math"
	"slices"

	"github.com/dynctl/dynctl/internal/grammar/pda"
)

// trie holds the tokens by their bytes, each node before its children, so that a
// subtree is a range of nodes and a range of tokens. Node 0 is the root.
type trie struct {
	label []byte
	depth []uint16
	end   []int32 // the first node after the subtree
	first []int32 // into ids: the node's tokens end where the next node's begin
	ids   []uint32
}

// newTrie leaves out tokens that are empty or too long for the depth.
func newTrie(tokens [][]byte) *trie {
	t := &trie{label: []byte{0}, depth: []uint16{0}, end: []int32{0}, first: []int32{0}}
	for id, b := range tokens {
		if len(b) > 0 && len(b) < math.MaxUint16 {
			t.ids = append(t.ids, uint32(id))
		}
	}
	slices.SortStableFunc(t.ids, func(a, b uint32) int { return bytes.Compare(tokens[a], tokens[b]) })
	path := []int32{0} // nodes of the last token
	var last []byte
	for i, id := range t.ids {
		token := tokens[id]
		same := 0
		for same < len(last) && same < len(token) && last[same] == token[same] {
			same++
		}
		for _, n := range path[same+1:] {
			t.end[n] = int32(len(t.label))
		}
		path = path[:same+1]
		for _, b := range token[same:] {
			path = append(path, int32(len(t.label)))
			t.label = append(t.label, b)
			t.depth = append(t.depth, uint16(len(path)-1))
			t.end = append(t.end, 0)
			t.first = append(t.first, int32(i)) // no token before this one is below the node
		}
		last = token
	}
	for _, n := range path {
		t.end[n] = int32(len(t.label))
	}
	t.first = append(t.first, int32(len(t.ids)))
	return t
}

// tokens returns the ids that end at a node.
func (t *trie) tokens(node int32) []uint32 { return t.ids[t.first[node]:t.first[node+1]] }

// goesOn reports whether a token continues after a node with one of the bytes.
func (t *trie) goesOn(node int32, with *pda.ByteSet) bool {
	for n := node + 1; n < t.end[node]; n = t.end[n] {
		if with.Has(t.label[n]) {
			return true
		}
	}
	return false
}
