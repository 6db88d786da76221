package gpu_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/gpu"
	"github.com/dynctl/dynctl/internal/lab/cuda/fake"
	"github.com/dynctl/dynctl/internal/lab/cuda/kerneltest"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/patience"
)

// closed closes the pretended driver when the test ends, which tells of missing waits, use
// after free and leaks.
func closed(t testing.TB, f *fake.Driver) *fake.Driver {
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// newGroup opens GPUs of a driver as one device.
func newGroup(t testing.TB, d driver.Driver, indexes ...int) *gpu.Device {
	t.Helper()
	group, err := gpu.OpenGroup(t.Context(), d, indexes, gpu.DeviceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := group.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return group
}

// newGroupRig is newRig on GPUs with these indexes; some have no peers.
func newGroupRig(t testing.TB, m *model.Model, blocks int, o gpu.Options, indexes []int, alone ...int) rig {
	t.Helper()
	f := closed(t, newFakes(t, 1<<28, 4, alone...))
	r := newRigOn(t, newGroup(t, f, indexes...), m, blocks, o)
	r.driver = f
	return r
}

// sameResiduals wants the same bits in the residual streams of all ranks. The last sum joins
// the stream where logits are computed, which is one rank where the vocabulary is not shared.
func sameResiduals(t *testing.T, r rig, bytesEach int) {
	t.Helper()
	sums, x := gpu.Residuals(r.Backend.(*gpu.Backend))
	if r.Info().VocabSize%4 != 0 {
		sums = nil
	}
	for _, addresses := range [][]uint64{sums, x} {
		for i, address := range addresses {
			if !bytes.Equal(r.driver.Bytes(address, bytesEach), r.driver.Bytes(addresses[0], bytesEach)) {
				t.Errorf("the residual stream of rank %d is another one than that of rank 0", i)
			}
		}
	}
}

// TestGroups is TestFamilies for models that several ranks share: over peer access, on one
// GPU, and copied where GPUs do not reach each other's memory.
func TestGroups(t *testing.T) {
	base := modeltest.Spec{Layers: 2, Hidden: 64, Heads: 8, KVHeads: 4, HeadDim: 64, FFN: 104, Vocab: 300, DType: "bf16", Seed: 11}
	with := func(family string, change func(s *modeltest.Spec)) modeltest.Spec {
		s := base
		s.Family = family
		if change != nil {
			change(&s)
		}
		return s
	}
	experts := func(s *modeltest.Spec) {
		s.FFN, s.Extra = 32, map[string]any{"num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": nil}
	}
	one := func(s *modeltest.Spec) { s.Heads, s.KVHeads, s.Vocab = 4, 2, 333 } // the vocabulary is not shared
	for _, c := range []struct {
		name  string
		spec  modeltest.Spec
		gpus  []int
		alone []int
		shots int // two-shot from so many bytes on
	}{
		{name: "norms of heads", spec: with("qwen3", nil), gpus: []int{3, 1, 0, 2}},
		{name: "biases everywhere, f32", spec: with("llama", func(s *modeltest.Spec) { one(s); s.AttentionBias, s.MLPBias, s.DType = true, true, "" }), gpus: []int{0, 1}},
		{name: "norms behind, soft caps", spec: with("gemma2", one), gpus: []int{1, 0}},
		{name: "experts", spec: with("mixtral", experts), gpus: []int{0, 1, 2, 3}},
		{name: "two-shot sums", spec: with("qwen2", nil), gpus: []int{0, 1, 2, 3}, shots: 1},
		{name: "two-shot sums of experts, three ranks", spec: with("mixtral", func(s *modeltest.Spec) { experts(s); s.Heads, s.KVHeads, s.Seed = 6, 3, 12 }), gpus: []int{0, 1, 2}, shots: 1},
		{name: "one GPU", spec: with("qwen3", one), gpus: []int{0, 0}},
		{name: "two ranks on each of two", spec: with("llama", nil), gpus: []int{0, 1, 0, 1}, shots: 512},
		{name: "no peers, experts", spec: with("mixtral", experts), gpus: []int{0, 1}, alone: []int{1}},
	} {
		if patience.RaceDetector && c.name != "one GPU" {
			continue // other arithmetic in the same goroutines
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := modeltest.Open(t, c.spec)
			r := newGroupRig(t, m, 16, gpu.WithTwoShot(options, c.shots), c.gpus, c.alone...)
			compareSteps(t, r, reference{t: t, m: m, c: m.Config()}, newCPURig(t, m, 16, blockSize))
			sameResiduals(t, r, 2*3*c.spec.Hidden)
			if n := r.Info().TensorParallel; n != len(c.gpus) || len(r.memory) != n {
				t.Errorf("%d ranks have %d pools", n, len(r.memory))
			}
		})
	}
	t.Run("batch-invariant", func(t *testing.T) {
		if patience.RaceDetector {
			t.Skip("the same goroutines")
		}
		t.Parallel()
		m, o := modeltest.Open(t, with("gemma2", one)), options
		o.BatchInvariant = true
		compareSteps(t, newGroupRig(t, m, 16, o, []int{0, 1}), reference{t: t, m: m, c: m.Config()}, newCPURig(t, m, 16, blockSize))
	})
}

// TestQuantizedGroups is TestGroups for weights of Q8_0, whose columns are shared in blocks of
// 32: three of them by two ranks.
func TestQuantizedGroups(t *testing.T) {
	if patience.RaceDetector {
		t.Skip("other arithmetic in the goroutines of TestGroups")
	}
	for name, family := range map[string]string{"dense": "llama", "experts": "mixtral"} {
		spec := modeltest.Spec{Family: family, Layers: 2, Hidden: 64, Heads: 4, KVHeads: 2, HeadDim: 64, FFN: 96, Vocab: 288, DType: "bf16", Seed: 9}
		if family == "mixtral" {
			spec.Extra = map[string]any{"num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": nil}
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := modeltest.Generate(t, spec)
			wide := open(t, modeltest.Quantized(t, dir, gguf.Q8_0), model.Options{})
			m := open(t, modeltest.GGUF(t, dir, gguf.Q8_0), model.Options{})
			compareSteps(t, newGroupRig(t, m, 16, options, []int{0, 1}), reference{t: t, m: wide, c: wide.Config(), exact: true}, newCPURig(t, m, 16, blockSize))
		})
	}
}

// Launches of a group never overlap, since they come behind kernels of other GPUs, too.
func TestLaunchesOfGroupsDoNotOverlap(t *testing.T) {
	drv := &mapping{Driver: closed(t, newFakes(t, 1<<28, 2))}
	d, err := gpu.OpenGroup(t.Context(), drv, []int{0, 1}, gpu.DeviceOptions{Overlap: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	m := modeltest.Open(t, modeltest.Spec{Family: "llama", Layers: 1, Hidden: 64, Heads: 4, KVHeads: 2, HeadDim: 16, FFN: 64, Vocab: 264, DType: "bf16"})
	r := newRigOn(t, d, m, 4, gpu.Options{BlockSize: 16, MaxTokens: 8, MaxSeqs: 2, MaxContext: 64})
	r.step(t, engine.BatchSeq{Tokens: []uint32{1, 2}, Blocks: table(0, 1), Logits: r.logits()})
	if drv.overlap.Load() != 0 || drv.launches.Load() == 0 {
		t.Errorf("%d of %d launches overlap", drv.overlap.Load(), drv.launches.Load())
	}
}

// What ranks cannot share is refused, and what they are.
func TestGroupsRefused(t *testing.T) {
	all := closed(t, newFakes(t, 1<<26, 4))
	for want, indexes := range map[string][]int{
		"0 ranks, possible are 1 to 8": nil, "9 ranks": make([]int, 9), "open device 7": {0, 7},
	} {
		if d, err := gpu.OpenGroup(t.Context(), all, indexes, gpu.DeviceOptions{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("OpenGroup(%v) = %v, %v, want %q", indexes, d, err, want)
		}
	}
	ks, err := kerneltest.Kernels()
	if err != nil {
		t.Fatal(err)
	}
	mixed := closed(t, fake.New(fake.Options{Kernels: ks, Devices: []driver.Properties{
		{Name: "A100", Major: 8, MemoryBytes: 1 << 20, SharedBytes: 227 << 10}, {Name: "H200", Major: 9, MemoryBytes: 1 << 20, SharedBytes: 227 << 10},
	}}))
	if d, err := gpu.OpenGroup(t.Context(), mixed, []int{1, 0}, gpu.DeviceOptions{}); err == nil || !strings.Contains(err.Error(), "(A100) has compute capability 8.0 and device 1 (H200) 9.0") {
		t.Errorf("OpenGroup() of different GPUs = %v, %v", d, err)
	}
	four := newGroup(t, all, 0, 1, 2, 3)
	base := modeltest.Spec{Family: "llama", Layers: 1, Hidden: 64, Heads: 8, KVHeads: 4, HeadDim: 16, FFN: 96, Vocab: 264, DType: "bf16"}
	few, narrow := base, base
	few.KVHeads = 2
	narrow.FFN = 24
	for want, m := range map[string]*model.Model{
		"4 ranks cannot share 8 query heads and 2 KV heads evenly, possible are 1, 2":       modeltest.Open(t, few),
		"4 ranks cannot share the 24 columns of MLPs in pieces of 8":                        modeltest.Open(t, narrow),
		"4 ranks cannot share the 96 columns of MLPs in pieces of 32; a CPU device (cpu:0)": open(t, modeltest.GGUF(t, modeltest.Generate(t, base), gguf.Q8_0), model.Options{}),
	} {
		if w, err := four.Load(t.Context(), m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Load() = %v, %v, want %q", w, err, want)
		}
	}
}

// The GPU with the least room decides, also where it has two ranks.
func TestMemoryOfGroups(t *testing.T) {
	m := modeltest.Open(t, modeltest.Spec{Family: "qwen3", Layers: 2, Hidden: 64, Heads: 4, KVHeads: 2, HeadDim: 64, FFN: 96, Vocab: 300, DType: "bf16", Seed: 5})
	fits := func(indexes ...int) int {
		t.Helper()
		f := closed(t, newFakes(t, 1<<24, 2))
		other, err := f.MemAlloc(1, 1<<23) // another process
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := f.MemFree(1, other); err != nil {
				t.Error(err)
			}
		})
		d := newGroup(t, f, indexes...)
		w, err := d.Load(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := w.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		b, err := w.NewBackend(t.Context(), gpu.Options{BlockSize: 16, MaxTokens: 32, MaxSeqs: 4, MaxContext: 128})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}()
		if _, err := b.FitBlocks(1<<20, 1); !errors.Is(err, device.ErrNoRoom) {
			t.Errorf("FitBlocks(1 << 20) = %v", err)
		}
		n, err := b.FitBlocks(0, 1)
		if err != nil {
			t.Fatal(err)
		}
		pool, err := b.AllocKV(n)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := pool.Close(); err != nil {
				t.Error(err)
			}
		}()
		if _, err := b.AllocKV(1); err == nil {
			t.Error("a second pool is allocated")
		}
		return n
	}
	alone, both, twice := fits(0), fits(0, 1), fits(0, 0)
	// GPU 1 has less than half of the room, and each of two ranks half of each block.
	if both >= alone || twice <= alone*8/10 || twice > alone {
		t.Errorf("%d blocks on one GPU, %d on two, %d with two ranks on one", alone, both, twice)
	}
}

// One lost GPU ends the whole group, with its reason.
func TestLostRank(t *testing.T) {
	for lost := range 2 {
		t.Run(fmt.Sprint("rank ", lost), func(t *testing.T) {
			f := newFakes(t, 1<<28, 2)
			d := newGroup(t, f, 0, 1)
			m := modeltest.Open(t, modeltest.Spec{Family: "qwen3", Layers: 1, Hidden: 64, Heads: 4, KVHeads: 2, HeadDim: 64, FFN: 96, Vocab: 300, DType: "bf16", Seed: 5})
			r := newRigOn(t, d, m, 4, gpu.Options{BlockSize: 16, MaxTokens: 8, MaxSeqs: 2})
			seq := engine.BatchSeq{Tokens: []uint32{1, 2}, Blocks: table(0, 1), Logits: r.logits()}
			r.step(t, seq)
			f.Lose(lost, driver.UncorrectableECC)
			for range 2 {
				if err := r.Step(t.Context(), []engine.BatchSeq{seq}); !errors.Is(err, gpu.ErrLost) || !strings.Contains(err.Error(), "uncorrectable ECC") {
					t.Errorf("Step() = %v", err)
				}
			}
			<-d.Lost()
			if err := d.Err(); err == nil || !strings.Contains(err.Error(), "uncorrectable ECC") {
				t.Errorf("Err() = %v", err)
			}
		})
	}
}
