package kvevents

import (
	"math"
	"slices"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/cluster"
)

// blocks makes router blocks of a server's blocks. A router block has as many tokens as the
// router's blocks have, and the hashes that the router computes of them; a server's block has
// another number of tokens, and a hash that means nothing to others. A router block is held
// while a rank of the server holds all blocks that have its tokens.
//
// A server's block that begins within a router block depends on those before it in that
// router block: they are its ancestors in a tree whose root begins with a router block, or is
// where the sizes meet again. A block that begins with a router block stands alone: of what
// was before it, its hashes are enough.
type blocks struct {
	size  int   // tokens of a router block
	limit int64 // of bytes
	out   output

	bytes          int64
	nodes          int
	oldest, newest *node
	held           map[uint64]held // by sequence hash
	ignored        ignored
}

// held is a router block that ranks hold.
type held struct {
	ranks int32 // and blocks of a rank with the same tokens
	at    int32 // position in its prompt
}

// ignored counts blocks that are not in the index.
type ignored struct {
	orphans uint64 // their parent is unknown, ignored itself, or of another adapter
	crowded uint64 // too many others depend on the same blocks
	dropped uint64 // forgotten for want of memory
}

// rank is one of the data-parallel ranks of a server, each with a KV cache of its own.
type rank struct{ nodes map[uint64]*node }

func newRank() *rank { return &rank{nodes: map[uint64]*node{}} }

// node is a server's block.
type node struct {
	hash uint64 // the server's
	rank *rank
	seed uint64 // of the hashes of ends
	// The tree: parent is nil for a root, which counts the nodes below it.
	root, parent, child, before, after *node
	below                              int
	older, newer                       *node

	start, n int      // its first token, and how many it has
	tail     []uint32 // its tokens behind the last end of a router block
	// ends are the router blocks that end in it, behind the one with the hash prev. missing
	// counts the blocks that are not held of those with tokens of the first of ends.
	ends    []cluster.KVStoredBlock
	prev    uint64
	missing int

	refs      int32 // physical blocks with this hash
	elsewhere bool  // it is in memory that does not count, and may come back
}

// maxBelow bounds a tree, and with it the work of one change.
const maxBelow = 1 << 16

// What a node and a router block take, with their places in maps.
const (
	nodeBytes = 296
	endBytes  = 64
)

func newBlocks(size int, limit int64, sink Sink) *blocks {
	return &blocks{size: size, limit: limit, out: output{sink: sink}, held: map[uint64]held{}}
}

func (n *node) end() int { return n.start + n.n }

// last is the hash of the last router block up to the end of n.
func (n *node) last() uint64 {
	if len(n.ends) > 0 {
		return n.ends[len(n.ends)-1].BlockHash
	}
	return n.prev
}

func (n *node) bytes() int64 { return nodeBytes + 4*int64(cap(n.tail)) + endBytes*int64(len(n.ends)) }

// store adds blocks of a rank, of n tokens each, behind a parent. Their hashes for the router
// have a seed, which is another one for each adapter.
func (b *blocks) store(r *rank, seed uint64, parent *uint64, hashes []uint64, tokens []uint32, n int) {
	var p *node
	if parent != nil {
		// Servers that have no parent may say 0.
		if p = r.nodes[*parent]; p == nil && *parent != 0 || p != nil && p.seed != seed {
			b.ignored.orphans += uint64(len(hashes))
			return
		}
	}
	if p != nil {
		b.touch(p)
	}
	for i, hash := range hashes {
		at := r.nodes[hash]
		if at != nil && at.seed != seed {
			b.ignored.orphans += uint64(len(hashes) - i)
			return
		}
		if at == nil {
			if at = b.add(r, seed, p, hash, tokens[i*n:(i+1)*n]); at == nil {
				b.ignored.crowded++
				b.ignored.orphans += uint64(len(hashes) - i - 1)
				return
			}
		}
		if at.refs < math.MaxInt32 {
			at.refs++
		}
		if at.refs == 1 {
			b.toggle(at, -1)
		}
		b.touch(at)
		p = at
	}
	// The newest stay, also where they are too many.
	for b.bytes > b.limit && b.oldest != nil && b.oldest != p {
		b.ignored.dropped++
		b.drop(b.oldest)
	}
}

// add makes a node that is not held yet; nil if there is no room for it.
func (b *blocks) add(r *rank, seed uint64, p *node, hash uint64, tokens []uint32) *node {
	n := &node{hash: hash, rank: r, seed: seed, n: len(tokens)}
	if p != nil {
		n.start, n.prev = p.end(), p.last()
	}
	if n.end() > math.MaxInt32 {
		return nil
	}
	n.root = n
	if n.start%b.size != 0 {
		n.root, n.parent = p.root, p
		if n.root.below == maxBelow {
			return nil
		}
		n.root.below++
		n.after, p.child = p.child, n
		if n.after != nil {
			n.after.before = n
		}
	}
	b.end(n, tokens)
	if rest := min(n.end()%b.size, n.n); rest > 0 {
		n.tail = slices.Clone(tokens[n.n-rest:])
	}
	r.nodes[hash] = n
	b.nodes++
	b.bytes += n.bytes()
	return n
}

// end computes the router blocks that end in a new node.
func (b *blocks) end(n *node, tokens []uint32) {
	first := n.start / b.size
	count := n.end()/b.size - first
	if count == 0 {
		return
	}
	within := n.start % b.size // tokens of the first that ancestors have
	if within > 0 {
		whole := make([]uint32, within+len(tokens))
		copy(whole[within:], tokens)
		for p, at := n.parent, within; at > 0; p = p.parent {
			at -= len(p.tail)
			copy(whole[at:], p.tail)
			if p.refs == 0 {
				n.missing++
			}
		}
		tokens = whole
	}
	n.missing++ // itself
	n.ends = make([]cluster.KVStoredBlock, count)
	prev := n.prev
	for i := range n.ends {
		local := blockhash.Local(tokens[i*b.size:(i+1)*b.size], n.seed)
		seq := local
		if first+i > 0 {
			seq = blockhash.Next(prev, local, n.seed)
		}
		n.ends[i] = cluster.KVStoredBlock{BlockHash: seq, TokensHash: local}
		prev = seq
	}
}

// toggle tells the router blocks with tokens of n that one block more is missing, or one less.
func (b *blocks) toggle(n *node, missing int) {
	b.part(n, missing)
	for i := 1; i < len(n.ends); i++ {
		b.change(n, i, missing)
	}
	for c := n.child; c != nil; c = c.after {
		b.toggleBelow(c, missing)
	}
}

// toggleBelow goes down to where the router block ends. At each node above, it has not.
func (b *blocks) toggleBelow(n *node, missing int) {
	if len(n.ends) > 0 {
		b.part(n, missing)
		return
	}
	for c := n.child; c != nil; c = c.after {
		b.toggleBelow(c, missing)
	}
}

// part changes what is missing of the first router block that ends in a node.
func (b *blocks) part(n *node, missing int) {
	if len(n.ends) == 0 {
		return
	}
	was := n.missing
	n.missing += missing
	if was == 0 || n.missing == 0 {
		b.change(n, 0, missing)
	}
}

// change adds the i-th router block that ends in a node, or takes it away.
func (b *blocks) change(n *node, i, missing int) {
	block := n.ends[i]
	h := b.held[block.BlockHash]
	if missing > 0 {
		if h.ranks--; h.ranks > 0 {
			b.held[block.BlockHash] = h
			return
		}
		delete(b.held, block.BlockHash)
		b.out.removed(block.BlockHash)
		return
	}
	h.ranks++
	h.at = int32(n.start/b.size + i)
	b.held[block.BlockHash] = h
	if h.ranks > 1 {
		return
	}
	prev := n.prev
	if i > 0 {
		prev = n.ends[i-1].BlockHash
	}
	b.out.stored(prev, int(h.at), block)
}

// remove takes one physical block away for each hash.
func (b *blocks) remove(r *rank, hashes []uint64) {
	for _, hash := range hashes {
		if n := r.nodes[hash]; n != nil {
			n.elsewhere = false
			b.release(n)
			b.free(n)
		}
	}
}

// move says that a block is in memory that counts, or is not.
func (b *blocks) move(r *rank, hash uint64, counts bool) {
	n := r.nodes[hash]
	switch {
	case n == nil:
	case counts && n.refs == 0:
		n.refs, n.elsewhere = 1, false
		b.toggle(n, -1)
	case !counts && n.refs > 0:
		n.refs, n.elsewhere = 1, true
		b.release(n)
	}
}

func (b *blocks) release(n *node) {
	if n.refs == 0 {
		return
	}
	if n.refs--; n.refs == 0 {
		b.toggle(n, +1)
	}
}
