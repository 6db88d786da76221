package kvevents

import (
	"cmp"
	"slices"
)

// free forgets a node that nobody needs, and then its ancestors that only it needed.
func (b *blocks) free(n *node) {
	for n != nil && n.refs == 0 && !n.elsewhere && n.child == nil {
		p := n.parent
		delete(n.rank.nodes, n.hash)
		b.nodes--
		b.bytes -= n.bytes()
		b.unlist(n)
		if p != nil {
			n.root.below--
			if n.before != nil {
				n.before.after = n.after
			} else {
				p.child = n.after
			}
			if n.after != nil {
				n.after.before = n.before
			}
		}
		n = p
	}
}

// drop forgets a node and those below it.
func (b *blocks) drop(n *node) {
	for n.child != nil {
		b.drop(n.child)
	}
	if n.rank.nodes[n.hash] != n {
		return // the last of those below it has taken it along
	}
	n.elsewhere = false
	if n.refs > 0 {
		n.refs = 1
		b.release(n)
	}
	b.free(n)
}

// clear forgets all blocks of a rank.
func (b *blocks) clear(r *rank) {
	b.out.flush(reasonRemoved)
	n := len(b.held)
	for _, n := range r.nodes {
		if n.root == n {
			b.drop(n)
		}
	}
	if len(b.held) == 0 {
		b.out.cleared(n)
	}
	b.out.flush(reasonCleared)
}

// touch makes a node the newest.
func (b *blocks) touch(n *node) {
	if b.newest == n {
		return
	}
	b.unlist(n)
	n.older = b.newest
	if b.newest != nil {
		b.newest.newer = n
	} else {
		b.oldest = n
	}
	b.newest = n
}

func (b *blocks) unlist(n *node) {
	switch {
	case n.older != nil:
		n.older.newer = n.newer
	case b.oldest == n:
		b.oldest = n.newer
	}
	switch {
	case n.newer != nil:
		n.newer.older = n.older
	case b.newest == n:
		b.newest = n.older
	}
	n.older, n.newer = nil, nil
}

// resident returns the hashes of all router blocks that are held, by position in their
// prompts.
func (b *blocks) resident() []uint64 {
	hashes := make([]uint64, 0, len(b.held))
	for h := range b.held {
		hashes = append(hashes, h)
	}
	slices.SortFunc(hashes, func(x, y uint64) int { return cmp.Compare(b.held[x].at, b.held[y].at) })
	return hashes
}
