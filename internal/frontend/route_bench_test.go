package frontend

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/kvindex"
	"github.com/dynctl/dynctl/internal/router"
)

// BenchmarkRoute is what a request costs the router: it hashes a prompt of 10,000 tokens
// in blocks of 16, looks it up, and chooses by policy kv. A quarter of the workers have half
// of the prompt in their caches. The requests of the last 64 turns are in flight.
func BenchmarkRoute(b *testing.B) {
	for _, workers := range []int{8, 64, 1000} {
		b.Run(fmt.Sprintf("%d workers", workers), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 2))
			c := &caches{index: kvindex.New(kvindex.Config{}), workers: map[cluster.InstanceID]*cachedWorker{}}
			c.matches.New = func() any { return new(kvindex.Match) }
			prompts := make([][]uint32, 64)
			for p := range prompts {
				prompts[p] = make([]uint32, 10_000)
				for i := range prompts[p] {
					prompts[p][i] = rng.Uint32N(100_000)
				}
			}
			hashed := func(p []uint32) []uint64 {
				chain := blockhash.Chain{BlockSize: 16, Seed: 1337}
				chain.Extend(p)
				return chain.Seq
			}
			all := make([]router.Candidate, workers)
			for w := range all {
				id := cluster.InstanceID(1 + w)
				all[w] = router.Candidate{ID: id, Worker: fmt.Sprintf("worker-%d", w)}
				c.workers[id] = &cachedWorker{name: all[w].Worker, rate: 20_000, kvBlocks: 10_000}
				for p := range prompts {
					if (w+p)%4 == 0 {
						h := hashed(prompts[p])
						c.index.Store(id, kvindex.Device, h[:len(h)/2])
					}
				}
			}
			load, policy := router.NewLoad(), mustPolicy(b, router.KV)
			flights := make([]*router.Flight, len(prompts))
			var lists candidateLists
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				p := prompts[i%len(prompts)]
				r := router.Request{ID: "request", PromptTokens: len(p), BlockSize: 16, Hashes: hashed(p)}
				list := lists.take()
				*list = append(*list, all...)
				v := router.View{Candidates: *list}
				c.describe(v.Candidates, c.lookup(r.Hashes))
				_, flight, err := load.Choose(r, v, policy.Pick)
				if err != nil {
					b.Fatal(err)
				}
				if old := flights[i%len(flights)]; old != nil {
					old.End()
				}
				flights[i%len(flights)] = flight
				lists.give(list)
			}
		})
	}
}

func mustPolicy(tb testing.TB, name string) router.Policy {
	p, err := router.NewPolicy(name)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}
