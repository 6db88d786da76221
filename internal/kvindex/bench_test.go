package kvindex

import (
	"math/rand/v2"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
)

// BenchmarkChurn stores and removes chains of 64 blocks of 1,000 workers in an index of a
// million blocks.
func BenchmarkChurn(b *testing.B) {
	const workers, chains, blocks = 1000, 16, 64
	x := New(Config{})
	rng := rand.New(rand.NewPCG(1, 2))
	have := make([][]uint64, workers*chains)
	fresh := func() []uint64 {
		c := make([]uint64, blocks)
		for i := range c {
			c[i] = rng.Uint64()
		}
		return c
	}
	for i := range have {
		have[i] = fresh()
		x.Store(cluster.InstanceID(1+i%workers), Device, have[i])
	}
	b.ResetTimer()
	for n := 0; n < b.N; n += 2 * blocks {
		i := rng.IntN(len(have))
		id := cluster.InstanceID(1 + i%workers)
		x.Remove(id, Device, have[i])
		have[i] = fresh()
		x.Store(id, Device, have[i])
	}
}

// BenchmarkLookup looks up a prompt of 1,000 blocks that 8 of 1,000 workers hold.
func BenchmarkLookup(b *testing.B) {
	x := New(Config{})
	rng := rand.New(rand.NewPCG(1, 2))
	prompts := make([][]uint64, 1000)
	for i := range prompts {
		prompts[i] = make([]uint64, 1000)
		for j := range prompts[i] {
			prompts[i][j] = rng.Uint64()
		}
		for w := range 8 {
			x.Store(cluster.InstanceID(1+(i+w*w)%1000), Device, prompts[i][:1000-100*w])
		}
	}
	var m Match
	for b.Loop() {
		x.Lookup(prompts[rng.IntN(len(prompts))], &m)
	}
}
