package kvindex

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// fleet is an index whose workers store and remove chains of blocks at random. Hashes are
// computed from numbers of chains and generations, because a list of them would take more
// memory than the index.
type fleet struct {
	*Index
	workers     int
	generations []uint32 // of chains
	random      uint64
	chain       [chainBlocks]uint64
	heap        uint64 // before the index
}

const chainBlocks = 64

// newFleet fills an index. It is bounded, as the frontend's is, but never full.
func newFleet(workers, blocks int) *fleet {
	f := &fleet{workers: workers, generations: make([]uint32, blocks/chainBlocks), random: 1}
	f.heap = heapInUse()
	f.Index = New(Config{MaxBytes: 1 << 40})
	for i := range f.generations {
		f.Store(f.owner(i), Device, f.hashes(i))
	}
	return f
}

func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// scramble is a step of splitmix64.
func scramble(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func (f *fleet) owner(chain int) cluster.InstanceID { return cluster.InstanceID(1 + chain%f.workers) }

// hashes returns the blocks of a chain, until the next call.
func (f *fleet) hashes(chain int) []uint64 {
	from := (uint64(chain)<<32 | uint64(f.generations[chain])) * chainBlocks
	for i := range f.chain {
		f.chain[i] = scramble(from + uint64(i))
	}
	return f.chain[:]
}

// replace makes a worker lose a chain of blocks and gain another.
func (f *fleet) replace() {
	f.random = scramble(f.random)
	chain := int(f.random % uint64(len(f.generations)))
	f.Remove(f.owner(chain), Device, f.hashes(chain))
	f.generations[chain]++
	f.Store(f.owner(chain), Device, f.hashes(chain))
}

// processorTime is what this process has used of all cores.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkChurn stores and removes chains of 64 blocks of 1,000 workers. An operation is
// one block stored or removed. Mops/core counts processor time, that of the garbage
// collector included. Bytes by pair of a block and a worker: what Size says, and what the
// heap takes.
func BenchmarkChurn(b *testing.B) {
	for _, c := range []struct {
		name   string
		blocks int
	}{{"1M", 1 << 20}, {"10M", 10_000_000}} {
		var f *fleet
		b.Run(c.name, func(b *testing.B) {
			if f == nil { // it is called for several b.N
				f = newFleet(1000, c.blocks)
			}
			b.ResetTimer()
			start := processorTime()
			for n := 0; n < b.N; n += 2 * chainBlocks {
				f.replace()
			}
			b.ReportMetric(float64(b.N)/1e6/(processorTime()-start).Seconds(), "Mops/core")
			b.StopTimer()
			pairs := float64(f.Size().Held)
			b.ReportMetric(float64(f.Size().Bytes)/pairs, "B/pair")
			b.ReportMetric(float64(heapInUse()-f.heap)/pairs, "heap-B/pair")
		})
	}
}

// BenchmarkLookup looks up prompts of 1,000 blocks that 8 of 1,000 workers hold in part,
// alone and beside a writer at full speed, in an index of 10 million blocks. The floor is
// the time to ask for as many random buckets and to use none of them: what the memory of
// this machine, with whatever else runs there, allows.
func BenchmarkLookup(b *testing.B) {
	const prompts, blocks = 1000, 1000
	f := newFleet(1000, 10_000_000-prompts*blocks)
	all := make([][]uint64, prompts)
	for i := range all {
		for j := range blocks {
			all[i] = append(all[i], scramble(1<<63+uint64(i*blocks+j)))
		}
		for w := range 8 {
			f.Store(cluster.InstanceID(1+(i+w*w)%f.workers), Device, all[i][:blocks-blocks/10*w])
		}
	}
	measure := func(b *testing.B) {
		var m Match
		var w window
		took, floor := make([]time.Duration, b.N), make([]time.Duration, b.N)
		for i := range took {
			p := all[scramble(uint64(i))%prompts]
			start := time.Now()
			f.Lookup(p, &m)
			took[i] = time.Since(start)
			if len(m.Overlaps) != 8 {
				b.Fatalf("%d workers hold a prompt, want 8", len(m.Overlaps))
			}
			p = all[scramble(uint64(i+b.N))%prompts]
			start = time.Now()
			for from := 0; from < blocks; from += groupSize {
				f.ask(&w, p, from)
			}
			floor[i] = time.Since(start)
		}
		b.ReportMetric(0, "ns/op") // of both together
		for name, times := range map[string][]time.Duration{"": took, "floor-": floor} {
			slices.Sort(times)
			b.ReportMetric(float64(times[b.N/2].Nanoseconds())/1000, name+"p50-us")
			b.ReportMetric(float64(times[b.N*99/100].Nanoseconds())/1000, name+"p99-us")
		}
	}
	b.Run("alone", measure)
	b.Run("beside-writer", func(b *testing.B) {
		var done atomic.Bool
		var writer sync.WaitGroup
		written, start := 0, time.Now()
		writer.Go(func() {
			for ; !done.Load(); written += 2 * chainBlocks {
				f.replace()
			}
		})
		measure(b)
		done.Store(true)
		writer.Wait()
		b.ReportMetric(float64(written)/1e6/time.Since(start).Seconds(), "written-Mops/s")
	})
}
