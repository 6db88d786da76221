package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/patience"
)

// sinkModel replays KV events and so knows what an index would believe.
type sinkModel struct {
	t     *testing.T
	known map[uint64]bool
}

func (m *sinkModel) Stored(parent *uint64, start int, blocks []cluster.KVStoredBlock) {
	if len(blocks) == 0 {
		m.t.Errorf("nothing stored at %d", start)
	}
	if (parent == nil) != (start == 0) {
		m.t.Errorf("stored at %d with parent %v", start, parent)
	}
	for _, b := range blocks {
		if m.known[b.BlockHash] {
			m.t.Errorf("block %x stored twice", b.BlockHash)
		}
		m.known[b.BlockHash] = true
	}
}

func (m *sinkModel) Removed(hashes []uint64, _ string) {
	for _, h := range hashes {
		if !m.known[h] {
			m.t.Errorf("block %x removed but never stored", h)
		}
		delete(m.known, h)
	}
}

func (m *sinkModel) Cleared(n int) {
	if n != len(m.known) {
		m.t.Errorf("cleared %d blocks, the index knows %d", n, len(m.known))
	}
	clear(m.known)
}

// TestBlockPoolAgainstModel runs random operations and compares with a model that
// holds, for each user, what it was given. After every operation the pool checks
// itself and the event stream must describe the findable blocks exactly.
func TestBlockPoolAgainstModel(t *testing.T) {
	patience.OneGoroutine(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	const blocks, size = 40, 4
	sink := &sinkModel{t: t, known: map[uint64]bool{}}
	p := NewBlockPool(blocks, sink)

	type user struct {
		ids      []int32
		chain    blockhash.Chain
		matched  int
		incoming bool
		held     bool
		quar     bool
	}
	var users []*user
	owners := func() map[int32]int { // exclusive use is only broken through the prefix cache
		n := map[int32]int{}
		for _, u := range users {
			for _, id := range u.ids {
				n[id]++
			}
		}
		return n
	}
	for op := range 20000 {
		var what string
		switch k := r.IntN(10); {
		case k < 3: // a sequence arrives; few distinct prompts, so that prefixes repeat
			n := 1 + r.IntN(6*size)
			tokens := make([]uint32, n)
			kind := uint32(r.IntN(4))
			for i := range tokens {
				tokens[i] = kind*1000 + uint32(i/(3*size))*uint32(r.IntN(2))
			}
			chain := blockhash.Chain{BlockSize: size, Seed: 1337}
			chain.Extend(tokens)
			m := p.Match(chain.Seq)
			fresh := (n+size-1)/size - m
			before := p.Counts()
			ids, err := p.Acquire(chain.Seq[:m], fresh)
			what = fmt.Sprintf("acquire %d+%d: %v", m, fresh, err)
			if err != nil {
				if got := p.Counts(); got != before {
					t.Fatalf("op %d: a failed acquire changed %+v to %+v", op, before, got)
				}
				break
			}
			own := owners()
			for _, id := range ids[m:] {
				if own[id] > 0 {
					t.Fatalf("op %d: fresh block %d is in use", op, id)
				}
			}
			u := &user{ids: ids, chain: chain, matched: m}
			if r.IntN(3) == 0 {
				u.incoming = true
				p.MarkIncoming(ids[m:])
			} else {
				p.Register(ids, &u.chain, m, len(chain.Seq))
			}
			users = append(users, u)
		case k < 9 && len(users) > 0:
			i := r.IntN(len(users))
			u := users[i]
			switch {
			case u.quar:
				what = "lift"
				p.Land(u.ids[u.matched:])
				users = slices.Delete(users, i, i+1)
			case u.incoming && r.IntN(4) == 0:
				what = "quarantine"
				p.Quarantine(u.ids[u.matched:])
				p.Release(u.ids)
				u.quar = true
				u.ids, u.matched = u.ids[u.matched:], 0
			case u.incoming:
				what = "land"
				p.Land(u.ids[u.matched:])
				u.incoming = false
				p.Register(u.ids, &u.chain, u.matched, len(u.chain.Seq))
			case u.held:
				what = "unhold"
				p.Unhold(u.ids)
				users = slices.Delete(users, i, i+1)
			case r.IntN(3) == 0:
				what = "hold"
				p.Hold(u.ids)
				p.Release(u.ids)
				u.held = true
			default:
				what = "release"
				p.Release(u.ids)
				users = slices.Delete(users, i, i+1)
			}
		case k == 9 && r.IntN(50) == 0:
			what = "clear"
			p.Clear()
		}
		if err := p.Check(); err != nil {
			t.Fatalf("op %d (%s): %v", op, what, err)
		}
		if len(sink.known) != len(p.byHash) {
			t.Fatalf("op %d (%s): events describe %d findable blocks, there are %d", op, what, len(sink.known), len(p.byHash))
		}
		for h := range p.byHash {
			if !sink.known[h] {
				t.Fatalf("op %d (%s): block %x is findable but was never announced", op, what, h)
			}
		}
	}
	for _, u := range users {
		switch {
		case u.quar:
			p.Land(u.ids[u.matched:])
		case u.held:
			p.Unhold(u.ids)
		default:
			if u.incoming {
				p.Land(u.ids[u.matched:])
			}
			p.Release(u.ids)
		}
	}
	if err := p.CheckIdle(); err != nil {
		t.Fatal(err)
	}
}

func TestEvictionTakesTailsFirst(t *testing.T) {
	p := NewBlockPool(4, nil)
	tokens := make([]uint32, 16)
	chain := blockhash.Chain{BlockSize: 4, Seed: 1337}
	chain.Extend(tokens)
	ids, err := p.Acquire(nil, 4)
	if err != nil {
		t.Fatal(err)
	}
	p.Register(ids, &chain, 0, 4)
	p.Release(ids)
	if _, err := p.Acquire(nil, 1); err != nil {
		t.Fatal(err)
	}
	if got := p.Match(chain.Seq); got != 3 {
		t.Errorf("after evicting one of four blocks the first %d match, want 3", got)
	}
}

func TestCheckFindsDamage(t *testing.T) {
	for _, tc := range []struct {
		name   string
		damage func(p *BlockPool, ids []int32)
	}{
		{"block in two lists", func(p *BlockPool, ids []int32) { p.free = append(p.free, p.free[0]) }},
		{"active block listed as free", func(p *BlockPool, ids []int32) { p.free = append(p.free, ids[0]) }},
		{"lost reference", func(p *BlockPool, ids []int32) { p.blocks[ids[0]].refs = 0 }},
		{"leaked free block", func(p *BlockPool, ids []int32) { p.free = p.free[1:] }},
		{"wrong count", func(p *BlockPool, ids []int32) { p.active++ }},
		{"free block with a reference", func(p *BlockPool, _ []int32) { p.blocks[p.free[0]].refs = 1 }},
		{"free block that is held", func(p *BlockPool, _ []int32) { p.blocks[p.free[0]].holds = 1 }},
		{"free block that can be found", func(p *BlockPool, _ []int32) { p.blocks[p.free[0]].hashed = true }},
		{"hash to a free block", func(p *BlockPool, ids []int32) { p.byHash[1] = p.free[0] }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := NewBlockPool(8, nil)
			ids, err := p.Acquire(nil, 3)
			if err != nil {
				t.Fatal(err)
			}
			tc.damage(p, ids)
			found := p.Check()
			if found == nil {
				t.Fatal("Check found nothing")
			}
			if err := p.CheckIdle(); err == nil || err.Error() != found.Error() {
				t.Errorf("CheckIdle found %v, Check %v", err, found)
			}
		})
	}
}
