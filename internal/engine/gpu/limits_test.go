package gpu_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/gpu"
	"github.com/dynctl/dynctl/internal/lab/cuda/fake"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/patience"
)

// small is a model that kernels compute.
func small(t *testing.T) *model.Model {
	return modeltest.Open(t, modeltest.Spec{Family: "qwen3", Layers: 2, Hidden: 64, Heads: 2, KVHeads: 1, HeadDim: 64, FFN: 96, Vocab: 300, DType: "bf16", Seed: 5})
}

func TestUnsupportedModels(t *testing.T) {
	d := newDevice(t, newDriver(t, 1<<30))
	base := modeltest.Spec{Family: "llama", Layers: 1, Hidden: 64, Heads: 2, KVHeads: 1, HeadDim: 64, FFN: 96, Vocab: 300}
	narrow, odd := base, base
	narrow.HeadDim = 40
	odd.FFN = 77
	for want, spec := range map[string]modeltest.Spec{
		"heads have 40 dimensions": narrow, "rows of 64 and 77 values": odd,
	} {
		w, err := d.Load(t.Context(), modeltest.Open(t, spec))
		if !errors.Is(err, gpu.ErrUnsupported) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "cpu:0") {
			t.Errorf("Load() = %v, %v, want %q", w, err, want)
		}
	}
	for kind, want := range map[gguf.Type]string{gguf.Q4_0: "is Q4_0"} {
		s := base
		s.Hidden, s.FFN = 256, 256
		m := open(t, modeltest.GGUF(t, modeltest.Generate(t, s), kind), model.Options{})
		if _, err := d.Load(t.Context(), m); !errors.Is(err, gpu.ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("Load() of quantized weights = %v, want %q", err, want)
		}
	}
}

// mapping counts tensor maps and launches.
type mapping struct {
	*fake.Driver
	maps, launches, overlap atomic.Int64
}

func (d *mapping) LaunchKernel(device int, l *driver.Launch, stream uint64) error {
	d.launches.Add(1)
	if l.Overlap {
		d.overlap.Add(1)
	}
	return d.Driver.LaunchKernel(device, l, stream)
}

func (d *mapping) TensorMapEncode(device int, m *driver.TensorMap) (driver.EncodedTensorMap, error) {
	d.maps.Add(1)
	return d.Driver.TensorMapEncode(device, m)
}

// What kernels for compute capability 9.0 need of the host is made at the start, and not
// in a step; and who wants the kernels for all devices gets no others.
func TestTensorMapsAreMadeAtTheStart(t *testing.T) {
	if patience.RaceDetector {
		t.Skip("steps in the goroutines of TestTokensOfTheCPU")
	}
	for _, portable := range []bool{false, true} {
		drv := &mapping{Driver: newDriver(t, 1<<30)}
		d, err := gpu.OpenDevice(t.Context(), drv, 0, gpu.DeviceOptions{Portable: portable})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := d.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		if got := strings.Join(d.Targets(), " "); (got == "sm_80") != portable || (got == "sm_80 sm_90a") == portable {
			t.Errorf("kernels for %s", got)
		}
		r := newRigOn(t, d, small(t), 40, gpu.Options{BlockSize: 16, MaxContext: 400, MaxTokens: 300, MaxSeqs: 4})
		made := drv.maps.Load()
		if (made == 0) != portable {
			t.Errorf("%d tensor maps", made)
		}
		for _, n := range []int{70, 200, 300} {
			r.step(t, engine.BatchSeq{Tokens: make([]uint32, n), Blocks: table(0, 20), Logits: r.logits()})
		}
		if now := drv.maps.Load(); now != made {
			t.Errorf("steps made %d tensor maps", now-made)
		}
	}
}

// Where launches overlap all do, in graphs, too, each kernel waits for the one before it, which
// the driver sees to, and results are the same.
func TestLaunchesOverlap(t *testing.T) {
	var results [][]float32
	for _, overlap := range []bool{false, true} {
		drv := &mapping{Driver: newDriver(t, 1<<30)}
		d, err := gpu.OpenDevice(t.Context(), drv, 0, gpu.DeviceOptions{Overlap: overlap})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := d.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		r := newRigOn(t, d, small(t), 40, gpu.Options{BlockSize: 16, MaxContext: 400, MaxTokens: 300, MaxSeqs: 4})
		prompt, next := r.logits(), r.logits()
		r.step(t, engine.BatchSeq{Tokens: make([]uint32, 100), Blocks: table(0, 20), Logits: prompt})
		r.step(t, engine.BatchSeq{Tokens: []uint32{7}, Start: 100, Blocks: table(0, 20), Logits: next})
		results = append(results, prompt, next)
		want := int64(0)
		if overlap {
			want = drv.launches.Load()
		}
		if got := drv.overlap.Load(); got != want || drv.launches.Load() < 50 {
			t.Errorf("%d of %d launches overlap, want %d", got, drv.launches.Load(), want)
		}
	}
	if !slices.Equal(results[0], results[2]) || !slices.Equal(results[1], results[3]) {
		t.Error("logits are others where launches overlap")
	}
}

// Backends share weights, and give everything else back when they end.
func TestMemory(t *testing.T) {
	f, m := newDriver(t, 1<<30), small(t)
	d := newDevice(t, f)
	free := func() int64 {
		n, _, err := f.MemGetInfo(0)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := free()
	w, err := d.Load(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	loaded := free()
	if before-loaded != w.Bytes() || w.Warning() != "" {
		t.Errorf("%d bytes for weights, not %d; %s", before-loaded, w.Bytes(), w.Warning())
	}
	var taken [2]int64
	for i := range taken {
		b, err := w.NewBackend(t.Context(), gpu.Options{BlockSize: 16, MaxTokens: 32, MaxSeqs: 4, MaxContext: 700})
		if err != nil {
			t.Fatal(err)
		}
		half, err := b.FitBlocks(0, 0.5)
		if err != nil || half < 500 {
			t.Errorf("FitBlocks() = %d, %v", half, err)
		}
		least, err := b.FitBlocks(0, 1e-9)
		if err != nil || least != 44 { // a context
			t.Errorf("FitBlocks() of next to nothing = %d, %v", least, err)
		}
		if _, err := b.FitBlocks(1<<20, 1); !errors.Is(err, device.ErrNoRoom) {
			t.Errorf("FitBlocks(1 << 20) = %v", err)
		}
		pool, err := b.AllocKV(60)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.AllocKV(1); err == nil {
			t.Error("a second pool is allocated")
		}
		taken[i] = loaded - free()
		if err := errors.Join(b.Close(), b.Close(), pool.Close()); err != nil {
			t.Error(err)
		}
	}
	if taken[0] != taken[1] || free() != loaded {
		t.Errorf("backends took %d bytes, %d are left in use", taken, loaded-free())
	}
	if err := w.Close(t.Context()); err != nil || free() != before {
		t.Errorf("%v, %d bytes are left in use", err, before-free())
	}
}

// What does not fit is refused with the figures, and leaves nothing behind.
func TestNoRoom(t *testing.T) {
	m := small(t)
	f := newDriver(t, 1<<20)
	d := newDevice(t, f)
	w, err := d.Load(t.Context(), m)
	if err == nil {
		defer w.Close(t.Context())
		_, err = w.NewBackend(t.Context(), gpu.Options{BlockSize: 16, MaxContext: 4096})
	}
	if !errors.Is(err, device.ErrNoRoom) || !strings.Contains(err.Error(), "--gpu-memory-utilization") {
		t.Errorf("%v", err)
	}
	for _, o := range []gpu.Options{{}, {BlockSize: 8}, {BlockSize: 24}, {BlockSize: 16, MaxTokens: -1}, {BlockSize: 16, MaxSeqs: -1}, {BlockSize: 16, MaxContext: -1}} {
		if w == nil {
			break
		}
		if b, err := w.NewBackend(t.Context(), o); err == nil {
			t.Errorf("NewBackend(%+v) = %v", o, b)
		}
	}
	for _, u := range []float64{-1, 1.01} {
		if _, err := gpu.OpenDevice(t.Context(), f, 0, gpu.DeviceOptions{MemoryUtilization: u}); err == nil {
			t.Errorf("a utilization of %g is taken", u)
		}
	}
}

func TestBadBatches(t *testing.T) {
	r := newRig(t, small(t), 4, gpu.Options{BlockSize: 16, MaxTokens: 8, MaxSeqs: 2})
	good := engine.BatchSeq{Tokens: []uint32{1, 2}, Blocks: table(0, 1), Logits: r.logits()}
	for name, bad := range map[string]engine.BatchSeq{
		"no tokens": {Blocks: table(0, 1)}, "no block": {Tokens: []uint32{1}}, "a block outside of the pool": {Tokens: []uint32{1}, Blocks: table(4, 1)},
		"a token outside of the vocabulary": {Tokens: []uint32{300}, Blocks: table(0, 1)}, "logits that are too short": {Tokens: []uint32{1}, Blocks: table(0, 1), Logits: make([]float32, 3)},
		"a negative start": {Tokens: []uint32{1}, Start: -1, Blocks: table(0, 1)},
	} {
		if err := r.Step(t.Context(), []engine.BatchSeq{good, bad}); !errors.Is(err, engine.ErrBatch) || !strings.Contains(err.Error(), "sequence 1") {
			t.Errorf("%s: %v", name, err)
		}
	}
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if err := r.Step(ctx, []engine.BatchSeq{good}); !errors.Is(err, gone) {
		t.Errorf("Step() after the context ended = %v", err)
	}
	r.step(t, good)
}

// A fault of the device ends every step with its reason.
func TestLostDevice(t *testing.T) {
	f := newFake(t, 1<<30)
	d := newDevice(t, f)
	r := newRigOn(t, d, small(t), 4, gpu.Options{BlockSize: 16, MaxTokens: 8, MaxSeqs: 2})
	seq := engine.BatchSeq{Tokens: []uint32{1, 2}, Blocks: table(0, 1), Logits: r.logits()}
	r.step(t, seq)
	f.Lose(0, driver.UncorrectableECC)
	for range 2 {
		if err := r.Step(t.Context(), []engine.BatchSeq{seq}); !errors.Is(err, gpu.ErrLost) || !strings.Contains(err.Error(), "uncorrectable ECC") {
			t.Errorf("Step() = %v", err)
		}
	}
	select {
	case <-d.Lost():
	default:
		t.Error("Lost() is open")
	}
	if d.Err() == nil {
		t.Error("Err() is nil")
	}
}
