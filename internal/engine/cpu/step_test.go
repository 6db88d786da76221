package cpu

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
	"github.com/dynctl/dynctl/internal/kvlayout"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/model/safetensors"
	"github.com/dynctl/dynctl/internal/patience"
)

func TestStepRefuses(t *testing.T) {
	m := modeltest.Open(t, modeltest.Spec{ContextLen: 64})
	r := newRig(t, m, 1, 4, Options{BlockSize: 16, MaxContext: 1000})
	vocab := r.Info().VocabSize
	tests := []struct {
		name string
		seq  engine.BatchSeq
		want string
	}{
		{"no tokens", engine.BatchSeq{Blocks: table(0, 4)}, "no tokens"},
		{"negative start", engine.BatchSeq{Tokens: []uint32{1}, Start: -1, Blocks: table(0, 4)}, "not within the context"},
		{"past the context", engine.BatchSeq{Tokens: []uint32{1}, Start: 64, Blocks: table(0, 4)}, "context of 64"},
		{"token past the vocabulary", engine.BatchSeq{Tokens: []uint32{uint32(vocab)}, Blocks: table(0, 4)}, "not below the vocabulary"},
		{"huge token", engine.BatchSeq{Tokens: []uint32{math.MaxUint32}, Blocks: table(0, 4)}, "not below the vocabulary"},
		{"short table", engine.BatchSeq{Tokens: []uint32{1}, Start: 16, Blocks: table(0, 1)}, "need 2"},
		{"no table", engine.BatchSeq{Tokens: []uint32{1}}, "need 1"},
		{"block past the pool", engine.BatchSeq{Tokens: []uint32{1}, Blocks: []int32{4}}, "not in the pool of 4"},
		{"negative block", engine.BatchSeq{Tokens: []uint32{1}, Blocks: []int32{-1}}, "not in the pool"},
		{"rows of other tokens", engine.BatchSeq{Tokens: []uint32{1}, Rows: make([][]float32, 2), Blocks: table(0, 4)}, "2 embeddings for 1 tokens"},
		{"narrow row", engine.BatchSeq{Tokens: []uint32{1}, Rows: [][]float32{{1, 2}}, Blocks: table(0, 4)}, "an embedding of 2 values"},
		{"no room for logits", engine.BatchSeq{Tokens: []uint32{1}, Blocks: table(0, 4), Logits: make([]float32, vocab-1)}, "room for"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			good := engine.BatchSeq{Tokens: []uint32{1}, Blocks: table(0, 4)}
			err := r.Step(t.Context(), []engine.BatchSeq{good, tt.seq})
			if !errors.Is(err, engine.ErrBatch) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "sequence 1") {
				t.Errorf("err = %v, want ErrBatch with %q", err, tt.want)
			}
		})
	}
	t.Run("unused part of the table", func(t *testing.T) {
		r.step(t, engine.BatchSeq{Tokens: []uint32{1}, Blocks: []int32{0, -1, 99}})
	})
	t.Run("empty batch", func(t *testing.T) { r.step(t) })
}

func TestNewBackendRefuses(t *testing.T) {
	m := modeltest.Open(t, modeltest.Spec{})
	d := NewDevice("cpu:0", 1)
	defer d.Close()
	w, err := d.Load(m)
	if err != nil {
		t.Fatal(err)
	}
	for _, opts := range []Options{{}, {BlockSize: -1}, {BlockSize: 16, KVDType: "f16"}, {BlockSize: 16, KVDType: "BF16"}} {
		if _, err := w.NewBackend(opts); err == nil {
			t.Errorf("%+v: no error", opts)
		}
	}
	b, err := w.NewBackend(Options{BlockSize: 16})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Step(t.Context(), nil); !errors.Is(err, engine.ErrBatch) {
		t.Errorf("step without a pool: err = %v, want ErrBatch", err)
	}
	for _, n := range []int{0, -1, math.MaxInt} {
		if _, err := b.AllocKV(n); err == nil {
			t.Errorf("%d blocks: no error", n)
		}
	}
	mem, err := b.AllocKV(2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.AllocKV(2); err == nil {
		t.Error("second pool: no error")
	}
	if err := errors.Join(b.Close(), b.Close(), mem.Close(), mem.Close()); err != nil {
		t.Error(err)
	}
	if err := b.Step(t.Context(), nil); !errors.Is(err, ErrClosed) {
		t.Errorf("step after close: err = %v, want ErrClosed", err)
	}
	if _, err := b.AllocKV(2); !errors.Is(err, ErrClosed) {
		t.Errorf("pool after close: err = %v, want ErrClosed", err)
	}
}

func TestInfo(t *testing.T) {
	m := modeltest.Open(t, modeltest.Spec{Vocab: 5000, ContextLen: 128})
	r := newRig(t, m, 2, 1, Options{BlockSize: 16, KVDType: "bf16", MaxContext: 100})
	want := engine.BackendInfo{
		Device: "cpu:0", DeviceName: "cpu 2c", VocabSize: 5000, TokenLimit: m.TokenLimit(), MaxContext: 100, Embedding: 64, TensorParallel: 1,
		KV: kvlayout.Shape{Layers: 2, KVHeads: 4, HeadDim: 16, BlockSize: 16, DType: "bf16"},
	}
	if got := r.Info(); got != want {
		t.Errorf("info = %+v, want %+v", got, want)
	}
	if want.TokenLimit >= 5000 {
		t.Errorf("token limit %d, want less than the padded vocabulary", want.TokenLimit)
	}
	mem := r.memory[0].Bytes()
	if int64(len(mem)) != want.KV.BlockBytes() {
		t.Errorf("pool of %d bytes, want %d", len(mem), want.KV.BlockBytes())
	}
}

// TestCancel cancels a long prefill and uses the backend again.
func TestCancel(t *testing.T) {
	m := modeltest.Open(t, modeltest.Spec{Layers: 16, Hidden: 32, Vocab: 260, ContextLen: 8192})
	for _, cores := range []int{1, 2} {
		r := newRig(t, m, cores, 512, Options{BlockSize: 16})
		seq := engine.BatchSeq{Tokens: prompt(1, 8192, m.TokenLimit()), Blocks: table(0, 512), Logits: r.newLogits()}
		cause := errors.New("client left")
		ctx, cancel := context.WithCancelCause(t.Context())
		timer := time.AfterFunc(30*time.Millisecond, func() { cancel(cause) })
		err := r.Step(ctx, []engine.BatchSeq{seq})
		timer.Stop()
		if !errors.Is(err, cause) {
			t.Fatalf("err = %v, want the cause", err)
		}
		if err := r.Step(ctx, []engine.BatchSeq{seq}); !errors.Is(err, cause) {
			t.Errorf("cancelled before: err = %v, want the cause", err)
		}
		seq.Tokens = seq.Tokens[:40]
		r.step(t, seq)
		want := newRig(t, m, 1, 3, Options{BlockSize: 16})
		logits := want.newLogits()
		want.step(t, engine.BatchSeq{Tokens: seq.Tokens, Blocks: table(0, 3), Logits: logits})
		sameBits(t, "after a cancelled step", seq.Logits, logits)
	}
}

// TestSharedDevice runs decode and prefill backends on one device at once: all
// make progress and all results are right.
func TestSharedDevice(t *testing.T) {
	m := modeltest.Open(t, modeltest.Spec{Family: "qwen3", KVHeads: 2, Hidden: 32, Vocab: 260})
	tokens := prompt(1, 600, m.TokenLimit())
	alone := newRig(t, m, 1, 40, Options{BlockSize: 16})
	want := alone.newLogits()
	alone.step(t, engine.BatchSeq{Tokens: tokens, Blocks: table(0, 40), Logits: want})

	d := NewDevice("cpu:0", 2)
	defer d.Close()
	var wait sync.WaitGroup
	for i := range 4 {
		r := newRigOn(t, d, m, 40, Options{BlockSize: 16})
		chunk := []int{1, 1, 600, 100}[i]
		wait.Go(func() {
			got := r.newLogits()
			for at := 0; at < len(tokens); at += chunk {
				seq := engine.BatchSeq{Tokens: tokens[at:min(at+chunk, len(tokens))], Start: at, Blocks: table(0, 40), Logits: got}
				if err := r.Step(t.Context(), []engine.BatchSeq{seq}); err != nil {
					t.Error(err)
					return
				}
			}
			for v := range want {
				if got[v] != want[v] {
					t.Errorf("chunks of %d: logit %d is %v, want %v", chunk, v, got[v], want[v])
					return
				}
			}
		})
	}
	wait.Wait()
}

// TestDecodeInterruptsPrefill shows that a decode step does not wait for the end
// of a long prefill step.
func TestDecodeInterruptsPrefill(t *testing.T) {
	m := modeltest.Open(t, modeltest.Spec{Layers: 16, Hidden: 32, Vocab: 260, ContextLen: 4096})
	d := NewDevice("cpu:0", 1)
	defer d.Close()
	prefill, decode := newRigOn(t, d, m, 256, Options{BlockSize: 16}), newRigOn(t, d, m, 1, Options{BlockSize: 16})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- prefill.Step(ctx, []engine.BatchSeq{{Tokens: prompt(1, 4096, m.TokenLimit()), Blocks: table(0, 256)}})
	}()
	// The device is taken once a decode step would have to wait.
	for d.turns.holderIs(nil) {
		runtime.Gosched()
	}
	for i := range 5 {
		decode.step(t, engine.BatchSeq{Tokens: []uint32{1}, Start: i, Blocks: table(0, 1), Logits: decode.newLogits()})
	}
	select {
	case err := <-done:
		t.Fatalf("the prefill step ended before the decode steps: %v", err)
	default:
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("prefill: err = %v, want canceled", err)
	}
}

func (s *turns) holderIs(t *turn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holder == t
}

func TestNoAllocations(t *testing.T) {
	specs := modeltest.Families()
	specs["qwen3 bf16"] = modeltest.Spec{Family: "qwen3", DType: "bf16", Hidden: 32, Vocab: 260}
	for name, spec := range specs {
		r := newRig(t, modeltest.Open(t, spec), 2, 64, Options{BlockSize: 16})
		decode := []engine.BatchSeq{
			{Tokens: []uint32{1}, Start: 40, Blocks: table(0, 4), Logits: r.newLogits()},
			{Tokens: []uint32{2}, Start: 3, Blocks: table(4, 4), Logits: r.newLogits()},
		}
		mixed := append(decode, engine.BatchSeq{Tokens: prompt(1, 100, 260), Blocks: table(8, 10)})
		for kind, batch := range map[string][]engine.BatchSeq{"decode": decode, "mixed": mixed} {
			r.step(t, batch...)
			if n := patience.Allocs(10, func() { r.step(t, batch...) }); n > 0 {
				t.Errorf("%s: %s step: %v allocations", name, kind, n)
			}
		}
	}
}

func TestDeviceClose(t *testing.T) {
	m := modeltest.Open(t, modeltest.Spec{})
	r := newRig(t, m, 3, 1, Options{BlockSize: 16})
	r.step(t, engine.BatchSeq{Tokens: []uint32{1}, Blocks: table(0, 1)})
	if err := errors.Join(r.device.Close(), r.device.Close()); err != nil {
		t.Error(err)
	}
	err := r.Step(t.Context(), []engine.BatchSeq{{Tokens: []uint32{1}, Blocks: table(0, 1)}})
	if !errors.Is(err, ErrClosed) {
		t.Errorf("err = %v, want ErrClosed", err)
	}
	if d := NewDevice("cpu:0", 0); d.Cores() != runtime.NumCPU() || d.ID() != "cpu:0" || d.Close() != nil {
		t.Errorf("device with all cores has %d", d.Cores())
	}
}

// TestShortenedWeights cuts the weight file under a running backend: steps fail,
// the process lives.
func TestShortenedWeights(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("faults on mapped files are tested on Linux")
	}
	dir := modeltest.Generate(t, modeltest.Spec{Layers: 4, Hidden: 128})
	m, err := model.Open(dir, model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	d := newDevice("cpu:0", 2, kernel.Portable) // others have a copy of the weights
	defer d.Close()
	r := newRigOn(t, d, m, 1, Options{BlockSize: 16})
	seq := engine.BatchSeq{Tokens: []uint32{5}, Blocks: table(0, 1), Logits: r.newLogits()}
	r.step(t, seq)
	if err := os.Truncate(filepath.Join(dir, safetensors.SingleName), 8192); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := r.Step(t.Context(), []engine.BatchSeq{seq}); !errors.Is(err, ErrMemory) {
			t.Errorf("err = %v, want ErrMemory", err)
		}
	}
	if err := m.Check(); !errors.Is(err, safetensors.ErrChanged) {
		t.Errorf("check: err = %v, want ErrChanged", err)
	}
	for _, level := range kernel.Levels() {
		d := newDevice("cpu:0", 2, level)
		defer d.Close()
		if _, err := d.Load(m); !errors.Is(err, safetensors.ErrChanged) && !errors.Is(err, ErrMemory) {
			t.Errorf("%s: load: err = %v, want ErrChanged", level, err)
		}
	}
}
