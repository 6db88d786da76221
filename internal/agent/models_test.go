package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/chat/parse"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine/cpu"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/worker"
)

// testModels are the models of an agent with two devices and plenty of memory.
func testModels(t *testing.T) *models {
	t.Helper()
	a := &Agent{cfg: testConfig(t), log: testLog(t), devices: map[string]computer{}}
	for i := range 2 {
		id := fmt.Sprint("cpu:", i)
		d := cpu.NewDevice(id, 1)
		a.devices[id] = cpuDevice{d, a.log}
		t.Cleanup(func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	m := newModels(a)
	m.memory = func() (int64, int64) { return 64 << 30, 64 << 30 }
	return m
}

func (m *models) held() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.shared)
}

func on(dir, device string) cluster.Assignment {
	return cluster.Assignment{
		Name: "worker-1", Model: cluster.ModelSpec{Name: "served", Path: dir}, Device: device,
		Engine: cluster.EngineSpec{BlockSize: 16, KVBlocks: 32},
	}
}

func give(t *testing.T, l *worker.Loaded) {
	t.Helper()
	if err := l.Backend.Close(); err != nil {
		t.Error(err)
	}
	l.Release()
}

func TestWeightsAreShared(t *testing.T) {
	m := testModels(t)
	dir := modeltest.Generate(t, modeltest.Spec{Layers: 1, Hidden: 32, Heads: 2})
	var mu sync.Mutex
	var loaded []*worker.Loaded
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			progress := []float64{}
			l, err := m.load(t.Context(), on(dir, "cpu:0"), func(p float64) { progress = append(progress, p) })
			if err != nil {
				t.Error(err)
				return
			}
			if len(progress) == 0 || progress[len(progress)-1] != 1 {
				t.Errorf("progress %v", progress)
			}
			mu.Lock()
			defer mu.Unlock()
			loaded = append(loaded, l)
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	if m.held() != 1 {
		t.Errorf("%d copies of one model on one device", m.held())
	}
	key := modelKey{dir: dir, device: "cpu:0"}
	sm := m.shared[key]
	if sm.refs != 6 {
		t.Errorf("%d references of 6", sm.refs)
	}
	other, err := m.load(t.Context(), on(dir, "cpu:1"), func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	if m.held() != 2 || m.shared[modelKey{dir: dir, device: "cpu:1"}] == sm {
		t.Error("another device shares the copy")
	}
	give(t, other)
	for i, l := range loaded {
		if m.held() != 1 {
			t.Fatalf("released after %d of 6", i)
		}
		give(t, l)
		l.Release() // a second time changes nothing
	}
	if m.held() != 0 {
		t.Error("nobody uses it and it is held")
	}
	// The next one loads it anew.
	again, err := m.load(t.Context(), on(dir, "cpu:0"), func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	if m.shared[key] == sm {
		t.Error("a closed model was taken up again")
	}
	give(t, again)
}

func TestFailedLoadIsTriedAgain(t *testing.T) {
	m := testModels(t)
	dir := filepath.Join(t.TempDir(), "model")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := m.load(t.Context(), on(dir, "cpu:0"), func(float64) {}); err == nil || !strings.Contains(err.Error(), dir) {
				t.Errorf("got %v, want an error that names the directory", err)
			}
		})
	}
	wg.Wait()
	if m.held() != 0 {
		t.Error("a failed load is remembered")
	}
	if err := os.Rename(modeltest.Generate(t, modeltest.Spec{Layers: 1, Hidden: 32, Heads: 2}), dir); err != nil {
		t.Fatal(err)
	}
	l, err := m.load(t.Context(), on(dir, "cpu:0"), func(float64) {})
	if err != nil {
		t.Fatalf("now it is there: %v", err)
	}
	give(t, l)
}

func TestLoadRefuses(t *testing.T) {
	m := testModels(t)
	dir := modeltest.Generate(t, modeltest.Spec{Layers: 1, Hidden: 32, Heads: 2})
	if _, err := m.load(t.Context(), on(dir, "gpu:0"), func(float64) {}); err == nil || !strings.Contains(err.Error(), "gpu:0") {
		t.Errorf("a device that is not there: %v", err)
	}
	for _, spec := range []cluster.ModelSpec{{Path: dir, ToolParser: "hermess"}, {Path: dir, ReasoningParser: "hermes"}} {
		as := on(dir, "cpu:0")
		as.Model = spec
		if _, err := m.load(t.Context(), as, func(float64) {}); !errors.Is(err, parse.ErrUnknown) {
			t.Errorf("%+v: %v", spec, err)
		}
	}
	m.memory = func() (int64, int64) { return 1 << 10, 64 << 30 }
	if _, err := m.load(t.Context(), on(dir, "cpu:0"), func(float64) {}); !errors.Is(err, ErrMemory) {
		t.Errorf("no memory: %v", err)
	}
	if m.held() != 0 {
		t.Error("a refused load keeps the weights")
	}
}

// What a worker tells others about its model.
func TestLoadedModel(t *testing.T) {
	m := testModels(t)
	dir := modeltest.Generate(t, modeltest.Spec{Layers: 1, Hidden: 32, Heads: 2})
	l, err := m.load(t.Context(), on(dir, "cpu:0"), func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	defer give(t, l)
	if l.Blocks != 32 || l.Card.DisplayName != "served" || l.Card.Digest == "" || l.Card.HashSeed != cluster.DefaultHashSeed {
		t.Errorf("%d blocks, card %+v", l.Blocks, l.Card)
	}
	if len(l.Card.Files) == 0 || len(l.Card.Files) != len(l.Files) {
		t.Errorf("%d files in the card, %d contents", len(l.Card.Files), len(l.Files))
	}
	for _, f := range l.Card.Files {
		if int64(len(l.Files[f.Name])) != f.Size {
			t.Errorf("%s has %d bytes, the card says %d", f.Name, len(l.Files[f.Name]), f.Size)
		}
	}
}

func TestBuiltinModel(t *testing.T) {
	m := testModels(t)
	l, err := m.load(t.Context(), on("", "cpu:0"), func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	give(t, l)
	// Without a place to write it, that is the reason.
	m.a.cfg.StateDir = filepath.Join(dirOfAFile(t), "x")
	if _, err := m.load(t.Context(), on("", "cpu:0"), func(float64) {}); err == nil || !strings.Contains(err.Error(), "built-in model") {
		t.Errorf("got %v", err)
	}
}

// dirOfAFile is a path below which nothing can be made, not even by root.
func dirOfAFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestEngineSpec(t *testing.T) {
	m := testModels(t)
	if got := m.engineSpec(cluster.EngineSpec{}); got.BlockSize != cluster.DefaultBlockSize || got.KVBlocks != 0 || got.MaxSeqs != 0 || got.KVDType != "auto" {
		t.Errorf("defaults %+v", got)
	}
	m.a.cfg.Engine.BlockSize, m.a.cfg.Engine.KVBlocks, m.a.cfg.Engine.MaxSeqs, m.a.cfg.Engine.MaxBatchTokens = 32, 100, 8, 256
	m.a.cfg.Engine.KVDType = "int8"
	want := cluster.EngineSpec{BlockSize: 32, KVDType: "int8", KVBlocks: 100, MaxSeqs: 8, MaxBatchTokens: 256, MaxModelLen: 77}
	if got := m.engineSpec(cluster.EngineSpec{MaxModelLen: 77}); got != want {
		t.Errorf("of the node: %+v, want %+v", got, want)
	}
	m.a.cfg.Engine.ITLTarget, m.a.cfg.Engine.Speculative, m.a.cfg.Engine.TensorParallel = 90*time.Millisecond, "ngram:3", 2
	want.TensorParallel, want.ITLTargetMS, want.Speculative = 2, 90, cluster.Speculative{Method: cluster.SpeculativeNgram, Tokens: 3}
	if got := m.engineSpec(cluster.EngineSpec{MaxModelLen: 77}); got != want {
		t.Errorf("of the node: %+v, want %+v", got, want)
	}
	want = cluster.EngineSpec{BlockSize: 128, KVDType: "bf16", KVBlocks: 7, MaxSeqs: 2, MaxBatchTokens: 64, ITLTargetMS: 50, TensorParallel: 4, Speculative: cluster.Speculative{Method: cluster.SpeculativeOff}}
	if got := m.engineSpec(want); got != want {
		t.Errorf("the topology's wish: %+v, want %+v", got, want)
	}
}

func TestPoolSize(t *testing.T) {
	const block = 1 << 20 // bytes
	const gb = 1 << 30
	for _, tc := range []struct {
		name       string
		wish       int
		blockBytes int64
		context    int // tokens, in blocks of 16
		free       int64
		want       int
		wrong      string
	}{
		{name: "a sixteenth of the memory", blockBytes: block, context: 160, free: 16 * gb, want: 1024},
		{name: "at most so many bytes", blockBytes: block, context: 160, free: 512 * gb, want: poolMaxBytes / block},
		{name: "at most so many blocks", blockBytes: 1 << 10, context: 160, free: 512 * gb, want: poolMaxBlocks},
		{name: "at least one context", blockBytes: block, context: 16 * 300, free: gb, want: 300},
		{name: "part of a block counts", blockBytes: block, context: 16*300 + 1, free: gb, want: 301},
		{name: "a context beyond all bounds", blockBytes: 1 << 10, context: 16 * 100000, free: gb, want: poolMaxBlocks},
		{name: "one context does not fit", blockBytes: block, context: 16 * 300, free: 299 * block, wrong: "one context of 4800 tokens needs 300.0 MiB"},
		{name: "memory unknown", blockBytes: block, context: 160, want: poolMaxBytes / block},
		{name: "memory unknown, long context", blockBytes: block, context: 16 * 3000, want: 3000},
		{name: "wish", wish: 100, blockBytes: block, context: 160, free: gb, want: 100},
		{name: "wish of less than a context", wish: 5, blockBytes: block, context: 160, free: gb, want: 5},
		{name: "wish of all", wish: 1024, blockBytes: block, context: 160, free: gb, want: 1024},
		{name: "wish of more than all", wish: 1025, blockBytes: block, context: 160, free: gb, wrong: "--kv-blocks 512"},
		{name: "wish, memory unknown", wish: 1 << 20, blockBytes: block, context: 160, want: 1 << 20},
		{name: "wish, and not one block fits", wish: 10, blockBytes: block, context: 160, free: block / 2, wrong: "--kv-blocks 1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := poolSize(tc.wish, tc.blockBytes, tc.context, 16, tc.free)
			if tc.wrong != "" {
				if !errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), tc.wrong) {
					t.Errorf("got %d %v, want ErrMemory with %q", got, err, tc.wrong)
				}
			} else if got != tc.want || err != nil {
				t.Errorf("got %d %v, want %d", got, err, tc.want)
			}
		})
	}
}

// TestRoomFor counts quantized weights by what they take in the file: once more for the
// rows that are put in order, and once more for the kernels.
func TestRoomFor(t *testing.T) {
	m := testModels(t)
	path := modeltest.GGUF(t, modeltest.Generate(t, modeltest.Spec{Layers: 1, Hidden: 64, Heads: 2, FFN: 96, Vocab: 300}), gguf.Q8_0)
	mod, err := model.Open(path, model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer mod.Close()
	const ordered = 2 * 64 * 64 / 32 * 34                   // queries and keys
	const matrices = (4*64*64 + 3*64*96 + 320*64) / 32 * 34 // and all others but the embedding, in whole panels of 32 rows
	device := m.a.devices["cpu:0"].(cpuDevice)
	if packed := device.CopyBytes(mod); mod.CopiedBytes() != ordered || packed != matrices && device.ISA() != "portable" {
		t.Errorf("%d bytes put in order, %d packed; want %d, %d", mod.CopiedBytes(), packed, ordered, matrices)
	}
	for free, want := range map[int64]string{
		ordered + matrices:     "",
		ordered + matrices - 1: "--cpu-isa portable",
		ordered:                "--cpu-isa portable",
		ordered - 1:            "use a smaller model",
		0:                      "", // unknown
	} {
		m.memory = func() (int64, int64) { return free, 0 }
		err := m.roomFor(mod, matrices, 0)
		if (err == nil) != (want == "") || err != nil && (!errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d bytes are free: err = %v, want %q", free, err, want)
		}
	}
}

// TestQuantizedModel: one model in several formats on one device. Each has weights and
// a digest of its own, so that workers do not exchange KV blocks.
func TestQuantizedModel(t *testing.T) {
	m := testModels(t)
	dir := modeltest.Generate(t, modeltest.Spec{Layers: 1, Hidden: 32, Heads: 2, FFN: 64, DType: "bf16"})
	as := func(format string) cluster.Assignment {
		as := on(dir, "cpu:0")
		as.Model.Quantize = format
		return as
	}
	memory := m.memory
	m.memory = func() (int64, int64) { return 1000, 0 }
	if _, err := m.load(t.Context(), as("q8_0"), func(float64) {}); !errors.Is(err, ErrMemory) {
		t.Errorf("without memory: err = %v, want ErrMemory", err)
	}
	if _, err := os.Stat(m.quantizedDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something was made without memory for it: %v", err)
	}
	m.memory = memory
	if _, err := m.load(t.Context(), as("q2"), func(float64) {}); err == nil || !strings.Contains(err.Error(), `"q2" is not one of q8_0, q4_0`) {
		t.Errorf("unknown format: %v", err)
	}
	digests := map[string]bool{}
	var all []*worker.Loaded
	for i, format := range []string{"", "q8_0", "q4_0", "q8_0"} {
		l, err := m.load(t.Context(), as(format), func(float64) {})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
		digests[l.Card.Digest] = true
		if want := cmp.Or(format, "bf16"); l.Card.Weights != want || m.held() != min(i+1, 3) {
			t.Errorf("card says %q, want %q; %d models are held after %d", l.Card.Weights, want, m.held(), i+1)
		}
	}
	if len(digests) != 3 {
		t.Errorf("%d digests of three formats", len(digests))
	}
	if files, err := os.ReadDir(m.quantizedDir()); err != nil || len(files) != 2 {
		t.Errorf("files %v, %v", files, err)
	}
	for _, l := range all {
		give(t, l)
	}
	if m.held() != 0 {
		t.Error("nobody uses them and they are held")
	}
}

// TestQuantizingWorkerStops: the worker that quantizes is told to stop while another one
// waits for the same weights. That one goes on.
func TestQuantizingWorkerStops(t *testing.T) {
	m := testModels(t)
	as := on(modeltest.Generate(t, modeltest.Spec{Layers: 2}), "cpu:0")
	as.Model.Quantize = "q8_0"
	ctx, stop := context.WithCancelCause(t.Context())
	told := errors.New("told to stop")
	other := make(chan error, 1)
	var once sync.Once
	_, err := m.load(ctx, as, func(float64) {
		once.Do(func() {
			go func() {
				l, err := m.load(t.Context(), as, func(float64) {})
				if err == nil {
					err = l.Backend.Close()
					l.Release()
				}
				other <- err
			}()
			patience.Until(t, "both want the weights", func() bool {
				m.mu.Lock()
				defer m.mu.Unlock()
				for _, sm := range m.shared {
					return sm.refs == 2
				}
				return false
			})
			stop(told)
		})
	})
	if !errors.Is(err, told) {
		t.Errorf("err = %v, want why it was stopped", err)
	}
	if err := <-other; err != nil {
		t.Errorf("the other one: %v", err)
	}
	if m.held() != 0 {
		t.Error("nobody uses the weights and they are held")
	}
}

// TestGGUFModel loads a file: its cards and files are like those of a folder, and
// copies that do not fit are refused before anything is read.
func TestGGUFModel(t *testing.T) {
	m := testModels(t)
	path := modeltest.GGUF(t, modeltest.Generate(t, modeltest.Spec{Layers: 1, Hidden: 32, Heads: 2, FFN: 32}), gguf.Q8_0)
	memory := m.memory
	m.memory = func() (int64, int64) { return 1000, 0 }
	_, err := m.load(t.Context(), on(path, "cpu:0"), func(float64) {})
	if !errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), "reordered and packed") {
		t.Errorf("without memory: err = %v, want ErrMemory", err)
	}
	m.memory = memory
	l, err := m.load(t.Context(), on(path, "cpu:0"), func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	defer give(t, l)
	for _, name := range []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"} {
		if len(l.Files[name]) == 0 {
			t.Errorf("%s is missing", name)
		}
	}
	if len(l.Card.Files) != 4 || l.Card.Digest == "" {
		t.Errorf("card %+v", l.Card)
	}
}

// The mock backend serves a model by its files alone, under a digest that workers with
// weights refuse.
func TestMockBackend(t *testing.T) {
	m := testModels(t)
	dir := modeltest.Generate(t, modeltest.Spec{Layers: 1, Hidden: 32, Heads: 2})
	computing, err := m.load(t.Context(), on(dir, "cpu:0"), func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	defer give(t, computing)
	m.memory = func() (int64, int64) { return 1 << 20, 0 } // it needs next to nothing
	as := on(dir, "cpu:1")
	as.Engine.Backend, as.Model.Quantize = cluster.BackendMock, "q8_0"
	l, err := m.load(t.Context(), as, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	defer give(t, l)
	if l.Card.Digest == computing.Card.Digest || l.Card.Weights != "mock" || len(l.Card.Files) != len(computing.Card.Files) {
		t.Errorf("card %+v", l.Card)
	}
	own, others := l.Backend.Info(), computing.Backend.Info()
	if own.TokenLimit != others.TokenLimit || own.MaxContext != others.MaxContext || own.KV.BlockSize != 16 {
		t.Errorf("mock: %+v, computing: %+v", own, others)
	}
	as.Engine.KVDType = "bf16"
	if _, err := m.load(t.Context(), as, func(float64) {}); err == nil || !strings.Contains(err.Error(), "kv_cache_dtype: the mock backend keeps f32") {
		t.Errorf("bf16: %v", err)
	}
	as.Engine.KVDType, as.Engine.TensorParallel = "", 3
	if _, err := m.load(t.Context(), as, func(float64) {}); err == nil || !strings.Contains(err.Error(), "3 ranks cannot share") {
		t.Errorf("three ranks: %v", err)
	}
	as.Engine.TensorParallel = own.KV.KVHeads
	if ranks, err := m.load(t.Context(), as, func(float64) {}); err != nil || ranks.Backend.Info().TensorParallel != own.KV.KVHeads || own.KV.KVHeads != others.KV.KVHeads {
		t.Errorf("%d ranks: %v, of %+v", own.KV.KVHeads, err, own)
	} else {
		give(t, ranks)
	}
	as.Engine.Backend = cluster.BackendCUDA
	if _, err := m.load(t.Context(), as, func(float64) {}); err == nil || !strings.Contains(err.Error(), "the backend cuda does not compute on cpu:1") {
		t.Errorf("cuda: %v", err)
	}
	if n := m.held(); n != 2 {
		t.Errorf("%d models are held, want 2", n)
	}
}
