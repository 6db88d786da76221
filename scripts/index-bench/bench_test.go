// Package indexbench measures the prefix index beside that of llm-d-kv-cache. It is a module
// of its own, so that its dependencies are none of dynctl's. See docs/routing.md.
package indexbench

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/llm-d/llm-d-kv-cache/pkg/kvcache"
	"github.com/llm-d/llm-d-kv-cache/pkg/kvcache/kvblock"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/kvindex"
)

const (
	workers      = 1000
	chainBlocks  = 64 // blocks of an event
	prompts      = 100
	promptBlocks = 1000
	holders      = 8 // workers that hold a part of a prompt
)

// index is what both can do. Worker numbers begin at 0.
type index interface {
	store(worker int, blocks []uint64)
	remove(worker int, blocks []uint64)
	// lookup returns how many workers hold the beginning of a prompt.
	lookup(blocks []uint64) int
}

type dynctl struct {
	*kvindex.Index
	match kvindex.Match
}

func id(worker int) cluster.InstanceID { return cluster.InstanceID(1 + worker) }

func (d *dynctl) store(worker int, blocks []uint64)  { d.Store(id(worker), kvindex.Device, blocks) }
func (d *dynctl) remove(worker int, blocks []uint64) { d.Remove(id(worker), kvindex.Device, blocks) }
func (d *dynctl) lookup(blocks []uint64) int {
	d.Lookup(blocks, &d.match)
	return len(d.match.Overlaps)
}

// llmd is the index in memory of llm-d-kv-cache with its scorer, as its indexer uses them.
type llmd struct {
	kvblock.Index
	scorer kvcache.KVBlockScorer
	ctx    context.Context
	pods   [workers][]kvblock.PodEntry
	keys   []kvblock.BlockHash
}

func newLLMD(b *testing.B) *llmd {
	l := &llmd{ctx: logr.NewContext(context.Background(), logr.Discard())}
	var err error
	if l.Index, err = kvblock.NewIndex(l.ctx, kvblock.DefaultIndexConfig()); err != nil {
		b.Fatal(err)
	}
	if l.scorer, err = kvcache.NewKVBlockScorer(kvcache.DefaultKVBlockScorerConfig()); err != nil {
		b.Fatal(err)
	}
	for i := range l.pods {
		l.pods[i] = []kvblock.PodEntry{{PodIdentifier: fmt.Sprintf("10.0.%d.%d:8000", i/250, i%250), DeviceTier: "gpu"}}
	}
	return l
}

func (l *llmd) hashes(blocks []uint64) []kvblock.BlockHash {
	l.keys = l.keys[:0]
	for _, h := range blocks {
		l.keys = append(l.keys, kvblock.BlockHash(h))
	}
	return l.keys
}

func (l *llmd) store(worker int, blocks []uint64) {
	keys := l.hashes(blocks)
	if err := l.Add(l.ctx, keys, keys, l.pods[worker]); err != nil {
		panic(err)
	}
}

func (l *llmd) remove(worker int, blocks []uint64) {
	for _, key := range l.hashes(blocks) {
		if err := l.Evict(l.ctx, key, kvblock.EngineKey, l.pods[worker]); err != nil {
			panic(err)
		}
	}
}

func (l *llmd) lookup(blocks []uint64) int {
	keys := l.hashes(blocks)
	pods, err := l.Lookup(l.ctx, keys, nil)
	if err != nil {
		panic(err)
	}
	scores, err := l.scorer.Score(l.ctx, keys, pods)
	if err != nil {
		panic(err)
	}
	return len(scores)
}

// scramble is a step of splitmix64.
func scramble(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// fill sets blocks to those of a chain.
func fill(blocks []uint64, chain uint64) {
	for i := range blocks {
		blocks[i] = scramble(chain*uint64(len(blocks)) + uint64(i))
	}
}

func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkIndex fills each index with a million blocks of 1,000 workers. Churn counts
// blocks stored and removed, by processor time; lookup is of prompts of 1,000 blocks that 8
// workers hold in part.
func BenchmarkIndex(b *testing.B) {
	const chains = 1_000_000 / chainBlocks
	for _, c := range []struct {
		name string
		make func(*testing.B) index
	}{
		{"dynctl", func(*testing.B) index { return &dynctl{Index: kvindex.New(kvindex.Config{MaxBytes: 1 << 40})} }},
		{"llm-d", func(b *testing.B) index { return newLLMD(b) }},
	} {
		before := heapInUse()
		x := c.make(b)
		blocks := make([]uint64, chainBlocks)
		for i := range uint64(chains) {
			fill(blocks, i)
			x.store(int(i%workers), blocks)
		}
		perPair := float64(heapInUse()-before) / (chains * chainBlocks)
		generations := make([]uint64, chains)
		random := uint64(1)
		b.Run("churn/"+c.name, func(b *testing.B) {
			start := processorTime()
			for n := 0; n < b.N; n += 2 * chainBlocks {
				random = scramble(random)
				i := random % chains
				fill(blocks, generations[i]<<32|i)
				x.remove(int(i%workers), blocks)
				generations[i]++
				fill(blocks, generations[i]<<32|i)
				x.store(int(i%workers), blocks)
			}
			b.ReportMetric(float64(b.N)/1e6/(processorTime()-start).Seconds(), "Mops/core")
			b.ReportMetric(perPair, "heap-B/pair")
		})
		all := make([][]uint64, prompts)
		for i := range all {
			all[i] = make([]uint64, promptBlocks)
			fill(all[i], 1<<40+uint64(i))
			for w := range holders {
				x.store((i+w*w)%workers, all[i][:promptBlocks-promptBlocks/10*w])
			}
		}
		b.Run("lookup/"+c.name, func(b *testing.B) {
			took := make([]time.Duration, b.N)
			for i := range took {
				p := all[scramble(uint64(i))%prompts]
				start := time.Now()
				n := x.lookup(p)
				took[i] = time.Since(start)
				if n != holders {
					b.Fatalf("%d workers hold a prompt, want %d", n, holders)
				}
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[b.N/2].Nanoseconds())/1000, "p50-us")
			b.ReportMetric(float64(took[b.N*99/100].Nanoseconds())/1000, "p99-us")
		})
		runtime.KeepAlive(x)
	}
}
