package router

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
)

// What a Load fills in equals what is counted flight by flight, whatever the order of the
// candidates is.
func TestFill(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	prompt := func() []uint64 { // a path in a tree
		n, h := rng.IntN(40), uint64(0)
		var out []uint64
		for k := range n {
			if k%8 == 0 {
				h = h<<2 | uint64(rng.IntN(3)+1)
			}
			out = append(out, h<<6|uint64(k))
		}
		return out
	}
	type flight struct {
		*Flight
		worker cluster.InstanceID
		hashes []uint64
	}
	l := NewLoad()
	var open []flight
	for range 3000 {
		id := cluster.InstanceID(1 + rng.IntN(20))
		if len(open) > 30 {
			i := rng.IntN(len(open))
			open[i].End()
			open = slices.Delete(open, i, i+1)
		}
		h := prompt()
		open = append(open, flight{to(t, l, id, h...), id, h})

		asked := prompt()
		var v View
		for id := cluster.InstanceID(1); id <= 22; id++ {
			v.Candidates = append(v.Candidates, Candidate{ID: id, InFlight: 99, Prefills: 99, PrefillTokens: 99, ActiveBlocks: 99, Shared: 99})
		}
		if rng.IntN(2) == 0 {
			rng.Shuffle(len(v.Candidates), func(i, j int) { v.Candidates[i], v.Candidates[j] = v.Candidates[j], v.Candidates[i] })
		}
		l.fill(Request{BlockSize: 16, Hashes: asked}, v)
		for _, c := range v.Candidates {
			requests, shared, blocks := 0, 0, map[uint64]bool{}
			for _, f := range open {
				if f.worker != c.ID {
					continue
				}
				requests++
				for k, h := range f.hashes {
					blocks[h] = true
					if k < len(asked) && asked[k] == h {
						shared = max(shared, k+1)
					}
				}
			}
			if c.InFlight != requests || c.Prefills != requests || c.ActiveBlocks != len(blocks)+requests || c.Shared != shared {
				t.Fatalf("worker %d: %+v, want %d requests, %d blocks, %d shared", c.ID, c, requests, len(blocks), shared)
			}
		}
	}
}

// A decision among many workers lists the best of them.
func TestExplained(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, n := range []int{1, 15, 16, 17, 18, 200} {
		for range 50 {
			var all []Candidate
			for i := range n {
				c := Candidate{ID: cluster.InstanceID(1 + i), Worker: cluster.WorkerName(i + 1), InFlight: rng.IntN(12)}
				if rng.IntN(3) == 0 {
					c.Excluded = "draining"
				}
				all = append(all, c)
			}
			rng.Shuffle(n, func(i, j int) { all[i], all[j] = all[j], all[i] })
			d, err := policies[LeastLoaded].Pick(Request{ID: "r"}, View{Candidates: all})
			want := slices.Clone(all)
			slices.SortFunc(want, func(a, b Candidate) int { // by excluded, cost and id
				key := func(c Candidate) int {
					if c.Excluded != "" {
						return 1<<40 + int(c.ID)
					}
					return c.InFlight<<20 + int(c.ID)
				}
				return key(a) - key(b)
			})
			if len(d.Candidates) != min(n, Explained) || err == nil && d.Candidates[0].ID != d.Chosen.ID {
				t.Fatalf("%d candidates, %v: listed %+v", n, err, d.Candidates)
			}
			for i, c := range d.Candidates {
				if err != nil {
					if c.Excluded == "" || c.ID != want[i].ID {
						t.Fatalf("place %d of excluded ones: %+v, want %+v", i, c, want[i])
					}
					continue
				}
				if c.Excluded != want[i].Excluded || c.Excluded == "" && c.Load != want[i].InFlight {
					t.Fatalf("place %d: %+v, want %+v", i, c, want[i])
				}
			}
		}
	}
}
