package kvevents

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/patience"
)

const seed = 1337

// index is a sink that checks what it is told.
type index struct {
	t      testing.TB
	blocks map[uint64]cluster.KVStoredBlock
	calls  int
	// adapters are those whose blocks come, beside those of the base; with anyAdapter, any.
	adapters   []string
	anyAdapter bool
}

func newIndex(t testing.TB) *index { return &index{t: t, blocks: map[uint64]cluster.KVStoredBlock{}} }

func (x *index) Stored(parent *uint64, start int, blocks []cluster.KVStoredBlock) {
	x.calls++
	if (parent == nil) != (start == 0) || len(blocks) == 0 || len(blocks) > maxStored {
		x.t.Errorf("%d blocks are stored at %d behind %v", len(blocks), start, parent)
	}
	for i, b := range blocks {
		prev := parent
		if i > 0 {
			prev = &blocks[i-1].BlockHash
		}
		if !x.follows(prev, b) {
			x.t.Errorf("block %d is %x, which is not the one behind its parent", start+i, b.BlockHash)
		}
		if _, ok := x.blocks[b.BlockHash]; ok {
			x.t.Errorf("block %x is stored twice", b.BlockHash)
		}
		x.blocks[b.BlockHash] = b
	}
}

// follows reports whether the hash of a block is that behind prev.
func (x *index) follows(prev *uint64, b cluster.KVStoredBlock) bool {
	if prev == nil {
		return b.BlockHash == b.TokensHash
	}
	return x.anyAdapter || slices.ContainsFunc(append([]string{""}, x.adapters...), func(adapter string) bool {
		return b.BlockHash == blockhash.Next(*prev, b.TokensHash, blockhash.AdapterSeed(seed, adapter))
	})
}

func (x *index) Removed(hashes []uint64, reason string) {
	x.calls++
	if len(hashes) == 0 || len(hashes) > maxRemoved || reason == "" {
		x.t.Errorf("%d blocks are removed: %q", len(hashes), reason)
	}
	for _, h := range hashes {
		if _, ok := x.blocks[h]; !ok {
			x.t.Errorf("block %x is removed, but not there", h)
		}
		delete(x.blocks, h)
	}
}

func (x *index) Cleared(n int) {
	x.calls++
	if n != len(x.blocks) || n == 0 {
		x.t.Errorf("%d blocks are cleared, there are %d", n, len(x.blocks))
	}
	clear(x.blocks)
}

// check verifies what the parts of b say of each other.
func (b *blocks) check(t testing.TB, ranks ...*rank) {
	t.Helper()
	count, bytes := 0, int64(0)
	below := map[*node]int{}
	want := map[uint64]int32{}
	for _, r := range ranks {
		for hash, n := range r.nodes {
			count++
			bytes += n.bytes()
			if n.hash != hash || n.rank != r {
				t.Fatalf("node %x is found as %x", n.hash, hash)
			}
			if n.refs == 0 && n.child == nil && !n.elsewhere {
				t.Fatalf("node %x is of no use", hash)
			}
			if (n.parent == nil) != (n.start%b.size == 0) || (n.parent == nil) != (n.root == n) {
				t.Fatalf("node %x at %d has another place in the tree", hash, n.start)
			}
			missing := 0
			for p, at := n, n.start-n.start%b.size; p != nil && p.end() > at; p = p.parent {
				if p.refs == 0 {
					missing++
				}
				if p != n && r.nodes[p.hash] != p {
					t.Fatalf("node %x has a parent that is gone", hash)
				}
			}
			if n.root != n {
				below[n.root]++
			}
			for i, e := range n.ends {
				if i == 0 && missing != n.missing {
					t.Fatalf("node %x says that %d are missing, there are %d", hash, n.missing, missing)
				}
				if i == 0 && missing == 0 || i > 0 && n.refs > 0 {
					want[e.BlockHash]++
				}
			}
		}
	}
	got := map[uint64]int32{}
	for h, x := range b.held {
		got[h] = x.ranks
	}
	if !maps.Equal(got, want) {
		t.Fatalf("%d router blocks are held, want %d", len(got), len(want))
	}
	listed := 0
	for n := b.oldest; n != nil; n = n.newer {
		if listed++; n.newer == nil && n != b.newest {
			t.Fatal("the list of ages is broken")
		}
		if n.below != below[n] {
			t.Fatalf("node %x has %d below it, not %d", n.hash, below[n], n.below)
		}
	}
	if listed != count || b.nodes != count || b.bytes != bytes {
		t.Fatalf("%d nodes of %d bytes, %d are listed, and %d of %d bytes counted", count, bytes, listed, b.nodes, b.bytes)
	}
}

// model is the same server, simply: physical blocks by hash, each with all tokens up to it.
type model struct {
	size  int
	ranks []map[uint64]*stored
}

type stored struct {
	copies int
	tokens []uint32 // from the first of the prompt on
	starts []int    // of the blocks up to it
	chain  []uint64 // their hashes
}

// held returns the hashes of the router blocks whose tokens are all in held blocks of one rank.
func (m *model) held() map[uint64]bool {
	found := map[uint64]bool{}
	for _, r := range m.ranks {
		for _, s := range r {
			c := blockhash.Chain{BlockSize: m.size, Seed: seed}
			c.Extend(s.tokens)
			for i, h := range c.Seq {
				all := true
				for j, start := range s.starts {
					end := len(s.tokens)
					if j+1 < len(s.starts) {
						end = s.starts[j+1]
					}
					if end > i*m.size && start < (i+1)*m.size {
						part := r[s.chain[j]]
						all = all && part != nil && part.copies > 0
					}
				}
				if all {
					found[h] = true
				}
			}
		}
	}
	return found
}

func engineHash(parent uint64, tokens []uint32) uint64 {
	h := fnv.New64a()
	_ = binary.Write(h, binary.LittleEndian, parent)
	_ = binary.Write(h, binary.LittleEndian, tokens)
	return h.Sum64()
}

// Random prompts are stored, in part, more than once and on several ranks, and blocks are
// removed in any order, also in the middle of a router block. The router's blocks are always
// those of the model.
func TestBlocksAsModel(t *testing.T) {
	patience.OneGoroutine(t)
	for _, sizes := range [][2]int{{1, 16}, {16, 16}, {32, 16}, {64, 16}, {1, 64}, {16, 64}, {32, 64}, {64, 64}, {128, 64}, {24, 16}, {48, 64}, {12, 16}, {17, 16}} {
		t.Run(fmt.Sprintf("%d of %d", sizes[0], sizes[1]), func(t *testing.T) {
			for n := range uint64(3) {
				asModel(t, sizes[0], sizes[1], n)
			}
		})
	}
}

func asModel(t *testing.T, server, router int, random uint64) {
	r := rand.New(rand.NewPCG(random, uint64(server)))
	sink := newIndex(t)
	b := newBlocks(router, 1<<30, sink)
	ranks := []*rank{newRank(), newRank()}
	m := &model{size: router, ranks: []map[uint64]*stored{{}, {}}}
	per := max(1, router/server) // blocks of a router block
	for range 120 {
		at := r.IntN(2)
		known := m.ranks[at]
		switch r.IntN(8) {
		default: // a prompt that shares its beginning with others, or follows a known block
			var parent *uint64
			var s stored
			if keys := slices.Sorted(maps.Keys(known)); len(keys) > 0 && r.IntN(2) == 0 {
				h := keys[r.IntN(len(keys))]
				if known[h].copies > 0 {
					parent, s = &h, *known[h]
				}
			}
			var hashes []uint64
			first := len(s.tokens)
			for range 1 + r.IntN(3*per) {
				prev := uint64(0)
				if n := len(s.chain); n > 0 {
					prev = s.chain[n-1]
				}
				tokens := slices.Repeat([]uint32{uint32(len(s.chain)*4 + max(0, r.IntN(6)-4))}, server)
				h := engineHash(prev, tokens)
				s = stored{tokens: slices.Concat(s.tokens, tokens), starts: append(slices.Clone(s.starts), len(s.tokens)), chain: append(slices.Clone(s.chain), h)}
				hashes = append(hashes, h)
				if known[h] == nil {
					c := s
					known[h] = &c
				}
				known[h].copies++
			}
			b.store(ranks[at], seed, parent, hashes, s.tokens[first:], server)
		case 0, 1, 2:
			var gone []uint64
			for _, h := range slices.Sorted(maps.Keys(known)) {
				if r.IntN(4) == 0 {
					gone = append(gone, h)
					known[h].copies = max(0, known[h].copies-1)
				}
			}
			b.remove(ranks[at], gone)
		case 3:
			if r.IntN(8) == 0 {
				b.clear(ranks[at])
				for _, s := range known {
					s.copies = 0
				}
			}
		}
		b.out.flush(reasonRemoved)
		b.check(t, ranks...)
		want := m.held()
		if len(want) != len(sink.blocks) {
			t.Fatalf("seed %d: %d router blocks, want %d", random, len(sink.blocks), len(want))
		}
		for h := range want {
			if _, ok := sink.blocks[h]; !ok {
				t.Fatalf("seed %d: router block %x is not stored", random, h)
			}
		}
		got := b.resident()
		if len(got) != len(want) {
			t.Fatalf("seed %d: %d are resident, want %d", random, len(got), len(want))
		}
		for i, h := range got {
			if !want[h] || i > 0 && b.held[got[i-1]].at > b.held[h].at {
				t.Fatalf("seed %d: resident %d of %d is %x at %d", random, i, len(got), h, b.held[h].at)
			}
		}
	}
	b.clear(ranks[0])
	b.clear(ranks[1])
	if b.check(t, ranks...); b.nodes != 0 || len(sink.blocks) != 0 || b.oldest != nil {
		t.Errorf("%d nodes and %d router blocks are left", b.nodes, len(sink.blocks))
	}
}

// prompt stores n blocks of one token each, every one with its own number.
func prompt(b *blocks, r *rank, first uint32, n, size int) (hashes []uint64) {
	var tokens []uint32
	parent := uint64(0)
	for i := range n {
		one := slices.Repeat([]uint32{first + uint32(i)}, size)
		parent = engineHash(parent, one)
		hashes, tokens = append(hashes, parent), append(tokens, one...)
	}
	b.store(r, seed, nil, hashes, tokens, size)
	b.out.flush(reasonRemoved)
	return hashes
}

// Memory is bounded: the oldest blocks go, with those that depend on them.
func TestBlocksAreBounded(t *testing.T) {
	for _, size := range []int{1, 16, 64, 128, 24} {
		sink := newIndex(t)
		b := newBlocks(64, 200*nodeBytes, sink)
		r := newRank()
		var last []uint64
		for i := range 50 {
			last = prompt(b, r, uint32(1000*i), 100, size)
			if b.check(t, r); b.bytes > b.limit {
				t.Fatalf("size %d: %d bytes, more than %d", size, b.bytes, b.limit)
			}
		}
		if b.ignored.dropped == 0 || r.nodes[last[99]] == nil || r.nodes[last[50]] == nil {
			t.Errorf("size %d: dropped %d, and the newest are not there", size, b.ignored.dropped)
		}
		if len(sink.blocks) != len(b.held) || size > 1 && len(b.held) == 0 {
			t.Errorf("size %d: %d router blocks, the sink has %d", size, len(b.held), len(sink.blocks))
		}
	}
}

// A server that hangs everything on one block makes no change long.
func TestBlocksAreNotCrowded(t *testing.T) {
	b := newBlocks(64, 1<<30, newIndex(t))
	r := newRank()
	root := prompt(b, r, 1, 1, 16)[0]
	for i := range uint32(maxBelow + 10) {
		b.store(r, seed, &root, []uint64{1<<32 + uint64(i)}, slices.Repeat([]uint32{i}, 16), 16)
	}
	if len(r.nodes) != maxBelow+1 || b.ignored.crowded != 10 {
		t.Errorf("%d blocks, %d ignored", len(r.nodes), b.ignored.crowded)
	}
}

// A block in memory that does not count is remembered until it comes back, or is removed.
func TestBlocksMove(t *testing.T) {
	sink := newIndex(t)
	b := newBlocks(32, 1<<30, sink)
	r := newRank()
	h := prompt(b, r, 1, 2, 16)
	for i, tc := range []struct {
		do   func()
		want int
	}{
		{func() { b.move(r, h[0], false) }, 0},
		{func() { b.move(r, h[0], false) }, 0},
		{func() { b.move(r, h[0], true) }, 1},
		{func() { b.move(r, h[0], true) }, 1},
		{func() { b.move(r, h[1], false) }, 0},
		{func() { b.move(r, 99, true) }, 0},
		{func() { b.move(r, h[1], true) }, 1},
		{func() { b.move(r, h[1], false); b.remove(r, h[1:]) }, 0},
		{func() { b.move(r, h[1], true) }, 0},
		{func() { b.remove(r, h[:1]) }, 0},
	} {
		tc.do()
		b.out.flush(reasonRemoved)
		if b.check(t, r); len(sink.blocks) != tc.want {
			t.Errorf("step %d: %d router blocks, want %d", i, len(sink.blocks), tc.want)
		}
	}
	if len(r.nodes) != 0 {
		t.Errorf("%d blocks are left", len(r.nodes))
	}
}

// Children of unknown blocks are counted; 0 means no parent for servers that have no other way.
func TestBlocksWithoutParent(t *testing.T) {
	sink := newIndex(t)
	b := newBlocks(16, 1<<30, sink)
	r := newRank()
	unknown, zero := uint64(7), uint64(0)
	b.store(r, seed, &unknown, []uint64{1, 2}, make([]uint32, 32), 16)
	b.store(r, seed, &zero, []uint64{3}, make([]uint32, 16), 16)
	b.out.flush(reasonRemoved)
	if b.ignored.orphans != 2 || len(sink.blocks) != 1 {
		t.Errorf("%d orphans, %d blocks", b.ignored.orphans, len(sink.blocks))
	}
}

// An adapter's blocks have hashes of their own, and are no children of another one's.
func TestBlocksOfAdapters(t *testing.T) {
	sink := newIndex(t)
	b := newBlocks(16, 1<<30, sink)
	r, tokens, root := newRank(), make([]uint32, 16), uint64(1)
	other := blockhash.AdapterSeed(seed, "tuned")
	b.store(r, seed, nil, []uint64{1}, tokens, 16)
	b.store(r, other, nil, []uint64{2}, tokens, 16)
	b.store(r, other, &root, []uint64{3}, tokens, 16) // its parent is the base's
	b.store(r, other, nil, []uint64{1}, tokens, 16)   // nobody has two with one hash
	b.out.flush(reasonRemoved)
	b.check(t, r)
	for _, want := range []uint64{blockhash.Local(tokens, seed), blockhash.Local(tokens, other)} {
		if _, ok := sink.blocks[want]; !ok {
			t.Errorf("no block %x among %v", want, sink.blocks)
		}
	}
	if len(sink.blocks) != 2 || b.ignored.orphans != 2 {
		t.Errorf("%d blocks, %d orphans", len(sink.blocks), b.ignored.orphans)
	}
}

// A prompt of many blocks is one call, or a few.
func TestRunsAreJoined(t *testing.T) {
	sink := newIndex(t)
	b := newBlocks(16, 1<<30, sink)
	r := newRank()
	hashes := prompt(b, r, 1, 2*maxStored+1, 16)
	if sink.calls != 3 {
		t.Errorf("%d calls", sink.calls)
	}
	sink.calls = 0
	b.remove(r, hashes)
	if b.out.flush(reasonRemoved); sink.calls != 1 {
		t.Errorf("%d calls", sink.calls)
	}
}
