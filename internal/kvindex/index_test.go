package kvindex

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/patience"
)

// naive is an index that is right by inspection.
type naive map[cluster.InstanceID]*[numTiers]map[uint64]bool

func (n naive) store(id cluster.InstanceID, t Tier, hashes []uint64) {
	if n[id] == nil {
		n[id] = &[numTiers]map[uint64]bool{{}, {}, {}}
	}
	for _, h := range hashes {
		n[id][t][h] = true
	}
}

func (n naive) remove(id cluster.InstanceID, t Tier, hashes []uint64) {
	for _, h := range hashes {
		if n[id] != nil {
			delete(n[id][t], h)
		}
	}
}

func (n naive) lookup(hashes []uint64) (out []Overlap) {
	for id, tiers := range n {
		o := Overlap{Worker: id}
	prompt:
		for _, h := range hashes {
			for t := range tiers {
				if tiers[t][h] {
					o.Blocks[t]++
					continue prompt
				}
			}
			break
		}
		if o.Total() > 0 {
			out = append(out, o)
		}
	}
	return out
}

func sorted(all []Overlap) []Overlap {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b Overlap) int { return cmp.Compare(a.Worker, b.Worker) })
	return all
}

// ids returns the workers of an index, sorted.
func (x *Index) ids() []cluster.InstanceID {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Sorted(maps.Keys(x.workers))
}

// prompts returns sequence hashes of prompts that share prefixes.
func prompts(rng *rand.Rand, n, blocks int) (out [][]uint64) {
	for i := range n {
		c := blockhash.Chain{BlockSize: 2, Seed: cluster.DefaultHashSeed}
		var tokens []uint32
		if i > 0 && rng.IntN(4) > 0 { // continues a part of an earlier one
			c.Seq = slices.Clone(out[rng.IntN(i)])
			c.Seq = c.Seq[:1+rng.IntN(len(c.Seq))]
			tokens = make([]uint32, 2*len(c.Seq))
		}
		for range 1 + rng.IntN(blocks) {
			tokens = append(tokens, rng.Uint32(), rng.Uint32())
		}
		c.Extend(tokens)
		out = append(out, c.Seq)
	}
	return out
}

// Random streams of events leave the index as they leave the naive one, and nothing when
// all workers are gone.
func TestIndexAgainstNaive(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			all := prompts(rng, 60, 150)
			x, want := New(Config{}), naive{}
			var m Match
			for step := range 3000 {
				id, tier := cluster.InstanceID(1+rng.IntN(8)), Tier(max(0, rng.IntN(6)-3))
				p := all[rng.IntN(len(all))]
				from := rng.IntN(len(p))
				part := p[from : from+1+rng.IntN(len(p)-from)]
				switch n := rng.IntN(100); {
				case n < 45:
					x.Store(id, tier, part)
					want.store(id, tier, part)
				case n < 55: // whole prompts, so that there are long overlaps
					x.Store(id, tier, p)
					want.store(id, tier, p)
				case n < 97:
					x.Remove(id, tier, part)
					want.remove(id, tier, part)
				case n < 98:
					x.Clear(id)
					want[id] = nil
					delete(want, id)
				default:
					x.Drop(id)
					delete(want, id)
				}
				if step%10 > 0 {
					continue
				}
				p = all[rng.IntN(len(all))]
				x.Lookup(p, &m)
				if got, should := sorted(m.Overlaps), sorted(want.lookup(p)); !slices.Equal(got, should) {
					t.Fatalf("step %d: %d blocks: got %v, want %v", step, len(p), got, should)
				}
			}
			for id, tiers := range want {
				for tier := range tiers {
					held, snap := x.Held(id)[tier], x.Snapshot(id, Tier(tier))
					if held != len(tiers[tier]) || len(snap) != held {
						t.Errorf("%v holds %d blocks in %v, its snapshot %d; want %d", id, held, Tier(tier), len(snap), len(tiers[tier]))
					}
					for _, h := range snap {
						if !tiers[tier][h] {
							t.Fatalf("%v: the snapshot has a block that it lost", id)
						}
					}
				}
			}
			back := New(Config{})
			for _, id := range x.ids() {
				for tier := range Tier(numTiers) {
					back.Store(id, tier, x.Snapshot(id, tier))
				}
			}
			for _, p := range all {
				back.Lookup(p, &m)
				if got, should := sorted(m.Overlaps), sorted(want.lookup(p)); !slices.Equal(got, should) {
					t.Fatalf("restored: got %v, want %v", got, should)
				}
			}
			for _, id := range x.ids() {
				x.Drop(id)
			}
			if s := x.Size(); s.Workers != 0 || s.Blocks != 0 || s.Held != 0 || x.sets.bytes != 0 {
				t.Errorf("left behind: %+v, %d bytes of sets", s, x.sets.bytes)
			}
		})
	}
}

// The published behavior of Dynamo's indexers, one by one.
func TestLookup(t *testing.T) {
	const a, b = cluster.InstanceID(1), cluster.InstanceID(2)
	p := []uint64{11, 12, 13, 14}
	for _, tc := range []struct {
		name string
		do   func(*Index)
		want []Overlap
	}{
		{"nothing stored", func(*Index) {}, nil},
		{"whole prompt", func(x *Index) { x.Store(a, Device, p) }, []Overlap{{a, [3]int{4}}}},
		{"a part of it", func(x *Index) { x.Store(a, Device, p[:2]) }, []Overlap{{a, [3]int{2}}}},
		{"without its beginning", func(x *Index) { x.Store(a, Device, p[1:]) }, nil},
		{"twice the same", func(x *Index) { x.Store(a, Device, p); x.Store(a, Device, p) }, []Overlap{{a, [3]int{4}}}},
		{"two workers of different length", func(x *Index) { x.Store(a, Device, p[:1]); x.Store(b, Device, p[:3]) }, []Overlap{{a, [3]int{1}}, {b, [3]int{3}}}},
		{"leaf removed", func(x *Index) { x.Store(a, Device, p); x.Remove(a, Device, p[3:]) }, []Overlap{{a, [3]int{3}}}},
		{"middle removed", func(x *Index) { x.Store(a, Device, p); x.Remove(a, Device, p[1:2]) }, []Overlap{{a, [3]int{1}}}},
		{"middle removed and stored again", func(x *Index) {
			x.Store(a, Device, p)
			x.Remove(a, Device, p[1:2])
			x.Store(a, Device, p[1:2])
		}, []Overlap{{a, [3]int{4}}}},
		{"unknown removed", func(x *Index) { x.Store(a, Device, p); x.Remove(a, Device, []uint64{99}); x.Remove(b, Device, p) }, []Overlap{{a, [3]int{4}}}},
		{"one of two cleared", func(x *Index) { x.Store(a, Device, p); x.Store(b, Device, p); x.Clear(a) }, []Overlap{{b, [3]int{4}}}},
		{"one of two dropped", func(x *Index) { x.Store(a, Device, p); x.Store(b, Device, p); x.Drop(b); x.Drop(b) }, []Overlap{{a, [3]int{4}}}},
		{"the fastest tier counts", func(x *Index) { x.Store(a, Disk, p); x.Store(a, Host, p[:3]); x.Store(a, Device, p[:1]) }, []Overlap{{a, [3]int{1, 2, 1}}}},
		{"tiers without a gap between them", func(x *Index) { x.Store(a, Host, p[:1]); x.Store(a, Device, p[1:2]); x.Store(a, Disk, p[3:]) }, []Overlap{{a, [3]int{1, 1, 0}}}},
		{"lost in one tier, kept in another", func(x *Index) { x.Store(a, Device, p); x.Store(a, Host, p); x.Remove(a, Device, p) }, []Overlap{{a, [3]int{0, 4, 0}}}},
		{"a hash of zero", func(x *Index) { x.Store(a, Device, []uint64{0}) }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			x := New(Config{})
			tc.do(x)
			var m Match
			x.Lookup(p, &m)
			if got := sorted(m.Overlaps); !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
			x.Lookup(nil, &m)
			if len(m.Overlaps) != 0 {
				t.Errorf("an empty prompt is found at %v", m.Overlaps)
			}
		})
	}
	x := New(Config{})
	x.Store(a, Device, []uint64{0})
	var m Match
	if x.Lookup([]uint64{0}, &m); m.Find(a).Total() != 1 || m.Find(b).Total() != 0 {
		t.Errorf("a hash of zero is found at %v", m.Overlaps)
	}
}

// A bounded index keeps to its bound and forgets what lookups do not find.
func TestBound(t *testing.T) {
	patience.OneGoroutine(t)
	x := New(Config{MaxBytes: 2 << 20})
	rng := rand.New(rand.NewPCG(3, 4))
	hotPrompt := prompts(rng, 1, 40)[0]
	var m Match
	for id := range cluster.InstanceID(3) {
		x.Store(1+id, Device, hotPrompt)
	}
	for i := range 4000 {
		id := cluster.InstanceID(1 + i%3)
		cold := make([]uint64, 100)
		for j := range cold {
			cold[j] = rng.Uint64()
		}
		x.Store(id, Device, cold)
		if x.Lookup(hotPrompt, &m); len(m.Overlaps) != 3 || m.Find(id).Total() != len(hotPrompt) {
			t.Fatalf("step %d: of the prompt in use is left: %v", i, m.Overlaps)
		}
	}
	s := x.Size()
	if s.Evicted == 0 || s.Held+int(s.Evicted) != 400_000+3*len(hotPrompt) {
		t.Errorf("%d held, %d forgotten of %d", s.Held, s.Evicted, 400_000+3*len(hotPrompt))
	}
	if s.Bytes > 3<<20 || s.Held < 30_000 {
		t.Errorf("%d bytes and %d pairs with a bound of %d", s.Bytes, s.Held, 2<<20)
	}
}

// Blocks that a worker removes and stores again and again do not make its list grow.
func TestListsAreCompacted(t *testing.T) {
	x := New(Config{})
	p := prompts(rand.New(rand.NewPCG(5, 6)), 1, 100)[0]
	for range 1000 {
		x.Store(1, Device, p)
		x.Store(2, Device, p)
		x.Remove(1, Device, p)
		x.Store(1, Device, p)
		x.Remove(2, Device, p[:len(p)/2])
	}
	for _, id := range x.ids() {
		if l := &x.workers[id].tiers[Device]; l.listed > 2*l.live()+2*logChunk+len(p) {
			t.Errorf("%v: %d listed for %d blocks", id, l.listed, l.live())
		}
	}
	if s := x.Size(); s.Bytes > 200_000 {
		t.Errorf("%d bytes for %d blocks", s.Bytes, s.Held)
	}
}

// Readers see of every worker a prefix that it had at some time during the lookup, whatever
// writers do: one half of the workers never change, the other half comes and goes.
func TestReadersBesideWriters(t *testing.T) {
	x := New(Config{})
	rng := rand.New(rand.NewPCG(7, 8))
	all := prompts(rng, 20, 100)
	const still = 4
	for id := range cluster.InstanceID(still) {
		for _, p := range all {
			x.Store(1+id, Device, p[:len(p)-int(id)*len(p)/8])
		}
	}
	want := naive{}
	for id := range cluster.InstanceID(still) {
		for _, p := range all {
			want.store(1+id, Device, p[:len(p)-int(id)*len(p)/8])
		}
	}
	var done atomic.Bool
	var writers, readers sync.WaitGroup
	for w := range uint64(3) {
		writers.Go(func() {
			rng := rand.New(rand.NewPCG(w, 9))
			for range 300 {
				id := cluster.InstanceID(100 + rng.IntN(4))
				p := all[rng.IntN(len(all))]
				switch rng.IntN(10) {
				case 0:
					x.Drop(id)
				case 1:
					x.Clear(id)
				case 2, 3:
					x.Remove(id, Device, p)
				default:
					x.Store(id, Tier(rng.IntN(numTiers)), p)
				}
				filler := make([]uint64, 50) // makes tables grow
				for i := range filler {
					filler[i] = rng.Uint64()
				}
				x.Store(id, Device, filler)
			}
		})
	}
	for r := range uint64(2) {
		readers.Go(func() {
			rng := rand.New(rand.NewPCG(r, 10))
			var m Match
			for !done.Load() {
				p := all[rng.IntN(len(all))]
				x.Lookup(p, &m)
				got := slices.DeleteFunc(sorted(m.Overlaps), func(o Overlap) bool { return o.Worker >= 100 })
				if should := sorted(want.lookup(p)); !slices.Equal(got, should) {
					t.Errorf("got %v, want %v", got, should)
					return
				}
			}
		})
	}
	writers.Wait()
	done.Store(true)
	readers.Wait()
	for _, id := range x.ids() {
		x.Drop(id)
	}
	if s := x.Size(); s.Blocks != 0 || x.sets.bytes != 0 {
		t.Errorf("left behind: %+v, %d bytes of sets", s, x.sets.bytes)
	}
}
