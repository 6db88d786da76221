package tokenizer

// byteTrie maps byte strings to small integers and finds all keys that are
// prefixes of a text. Edges live in one open-addressed table, which keeps large
// vocabularies compact and build time linear.
type byteTrie struct {
	root  [256]uint32 // children of node 0; 0 = none
	edges []trieEdge
	used  int
	value []int32 // per node; -1 = no key ends here
}

type trieEdge struct {
	key  uint64 // node<<8 | byte, plus one; 0 = empty slot
	node uint32
}

func newByteTrie() *byteTrie {
	return &byteTrie{edges: make([]trieEdge, 64), value: []int32{-1}}
}

// insert adds key with value v; the first value given for a key stays.
func (t *byteTrie) insert(key string, v int32) {
	node := uint32(0)
	for i := range len(key) {
		next := t.child(node, key[i])
		if next == 0 {
			next = uint32(len(t.value))
			t.value = append(t.value, -1)
			t.link(node, key[i], next)
		}
		node = next
	}
	if t.value[node] < 0 {
		t.value[node] = v
	}
}

// child returns the node reached from node over b, or 0.
func (t *byteTrie) child(node uint32, b byte) uint32 {
	if node == 0 {
		return t.root[b]
	}
	key := uint64(node)<<8 | uint64(b) + 1
	mask := uint64(len(t.edges) - 1)
	for i := mix(key) & mask; ; i = (i + 1) & mask {
		if e := &t.edges[i]; e.key == key {
			return e.node
		} else if e.key == 0 {
			return 0
		}
	}
}

func (t *byteTrie) link(node uint32, b byte, next uint32) {
	if node == 0 {
		t.root[b] = next
		return
	}
	if t.used*2 >= len(t.edges) {
		old := t.edges
		t.edges = make([]trieEdge, 2*len(old))
		for _, e := range old {
			if e.key != 0 {
				t.place(e)
			}
		}
	}
	t.used++
	t.place(trieEdge{uint64(node)<<8 | uint64(b) + 1, next})
}

func (t *byteTrie) place(e trieEdge) {
	mask := uint64(len(t.edges) - 1)
	i := mix(e.key) & mask
	for t.edges[i].key != 0 {
		i = (i + 1) & mask
	}
	t.edges[i] = e
}

// longest returns the length and value of the longest key that s starts with;
// the length is 0 when there is none.
func (t *byteTrie) longest(s string) (n int, v int32) {
	v = -1
	node := uint32(0)
	for i := range len(s) {
		if node = t.child(node, s[i]); node == 0 {
			break
		}
		if t.value[node] >= 0 {
			n, v = i+1, t.value[node]
		}
	}
	return n, v
}

// mix spreads the bits of x; the low bits of the result are good table indices.
func mix(x uint64) uint64 {
	x *= 0x9E3779B97F4A7C15
	return x ^ x>>32
}
