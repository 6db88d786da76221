package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/patience"
)

// What cannot be loaded is known before anything is loaded, and before a worker makes
// room for it.
func TestAdmit(t *testing.T) {
	m := testModels(t)
	spec := modeltest.Spec{Layers: 1, Hidden: 32, Heads: 4, KVHeads: 2, FFN: 64, ContextLen: 1024, DType: "bf16"}
	dir := modeltest.Generate(t, spec)
	damaged := func(name, content string) string {
		dir := modeltest.Generate(t, spec)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	cut := modeltest.Generate(t, spec)
	if err := os.Truncate(filepath.Join(cut, "model.safetensors"), 4096); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		change func(*cluster.Assignment)
		want   string
	}{
		"what can be":        {func(*cluster.Assignment) {}, ""},
		"the built-in model": {func(a *cluster.Assignment) { a.Model.Path = "" }, ""},
		"quantized":          {func(a *cluster.Assignment) { a.Model.Quantize = "q8_0" }, ""},
		"a device":           {func(a *cluster.Assignment) { a.Device = "cpu:7" }, `no device "cpu:7"`},
		"a GPU":              {func(a *cluster.Assignment) { a.Device = "gpu:9" }, `no device "gpu:9"`},
		"a backend":          {func(a *cluster.Assignment) { a.Engine.Backend = cluster.BackendCUDA }, "cuda does not compute on cpu:0"},
		"no model":           {func(a *cluster.Assignment) { a.Model.Path = "/no/such/model" }, "no such file"},
		"a wrong config":     {func(a *cluster.Assignment) { a.Model.Path = damaged("config.json", `{"model_type":"no-such-family"}`) }, "no-such-family"},
		"a broken config":    {func(a *cluster.Assignment) { a.Model.Path = damaged("config.json", "{") }, "config.json"},
		"a broken tokenizer": {func(a *cluster.Assignment) { a.Model.Path = damaged("tokenizer.json", "{") }, "tokenizer.json"},
		"weights cut off":    {func(a *cluster.Assignment) { a.Model.Path = cut }, "model.safetensors"},
		"ranks":              {func(a *cluster.Assignment) { a.Engine.TensorParallel = 3 }, "3 ranks cannot share"},
		"a format":           {func(a *cluster.Assignment) { a.Model.Quantize = "q2" }, `"q2" is not one of`},
		"a block size":       {func(a *cluster.Assignment) { a.Engine.BlockSize = 17 }, "17 tokens is not one of"},
		"a context":          {func(a *cluster.Assignment) { a.Engine.MaxModelLen = 1025 }, "1025 is not between 1 and the model's 1024"},
		"a KV type":          {func(a *cluster.Assignment) { a.Engine.KVDType = "f8" }, "f8"},
		"KV of the mock":     {func(a *cluster.Assignment) { a.Engine.Backend, a.Engine.KVDType = cluster.BackendMock, "int8" }, "the mock backend keeps f32"},
		"no vision tower":    {func(a *cluster.Assignment) { a.Role = cluster.RoleEncode }, "has no vision tower: only models that see images have encode workers"},
		"no tower to mock":   {func(a *cluster.Assignment) { a.Role, a.Engine.Backend = cluster.RoleEncode, cluster.BackendMock }, "has no vision tower"},
		"blocks":             {func(a *cluster.Assignment) { a.Engine.KVBlocks = 1_000_000_000 }, "1000000000 KV blocks need"},
		"blocks beyond int":  {func(a *cluster.Assignment) { a.Engine.KVBlocks = 1 << 62 }, "not enough memory"},
		"blocks of the mock": {func(a *cluster.Assignment) { a.Engine.Backend, a.Engine.KVBlocks = cluster.BackendMock, 1<<62 }, "not enough memory"},
	} {
		t.Run(name, func(t *testing.T) {
			as := on(dir, "cpu:0")
			tc.change(&as)
			err := m.admit(as, "")
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("err = %v, want %q", err, tc.want)
			}
			if tc.want == "" {
				return
			}
			// Loading finds the same, and so an agent that cannot ask before.
			if l, err := m.load(t.Context(), as, func(float64) {}); err == nil {
				give(t, l)
				if name != "a context" { // which the engine refuses
					t.Error("it was loaded")
				}
			}
		})
	}
	if m.held() != 0 || len(m.holdings) != 0 {
		t.Errorf("%d models and %d pools are held", m.held(), len(m.holdings))
	}
}

// seeing generates a model whose images can be prepared.
func seeing(t *testing.T) (dir string) {
	t.Helper()
	dir = modeltest.Generate(t, modeltest.Vision()["llava"])
	for name, text := range map[string]string{
		model.PreprocessorName: `{"image_processor_type":"CLIPImageProcessor","processor_class":"LlavaProcessor","size":{"shortest_edge":70},"crop_size":{"height":70,"width":70}}`,
		model.ProcessorName:    `{"processor_class":"LlavaProcessor","patch_size":14,"vision_feature_select_strategy":"default"}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// bigTower is a device whose vision towers take n bytes.
type bigTower struct {
	cpuDevice
	n int64
}

func (d bigTower) towerBytes(*model.Model) int64 { return d.n }

func testTowers(t *testing.T, n int64) *models {
	t.Helper()
	m := testModels(t)
	m.a.devices["cpu:0"] = bigTower{m.a.devices["cpu:0"].(cpuDevice), n}
	return m
}

// pack has the tower of loaded weights packed, as the first image does.
func pack(t *testing.T, sm *sharedModel, m *models) {
	t.Helper()
	if _, err := sm.encoder(m.a.log).weights.NewEncoder(); err != nil {
		t.Fatal(err)
	}
}

// An encode worker needs memory for what its device packs of the vision tower, whatever the
// rest of the model needs, and none for a tower that others have loaded; it shares nothing with
// workers of the whole model.
func TestAdmitEncode(t *testing.T) {
	m := testTowers(t, 4<<20)
	dir := seeing(t)
	as := on(dir, "cpu:0")
	as.Role, as.Engine = cluster.RoleEncode, cluster.EngineSpec{}
	m.memory = func() (int64, int64) { return 4 << 20, 4 << 20 }
	if err := m.admit(as, ""); err != nil {
		t.Errorf("a tower of all memory: %v", err)
	}
	m.memory = func() (int64, int64) { return 4<<20 - 1, 4 << 20 }
	if err := m.admit(as, ""); !errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), "the vision tower of "+dir+" needs 4.0 MiB, 4.0 MiB are free") {
		t.Errorf("a tower of more than all memory: %v", err)
	}
	if _, err := m.load(t.Context(), as, func(float64) {}); !errors.Is(err, ErrMemory) {
		t.Errorf("loaded without memory: %v", err)
	}
	mock := as
	mock.Engine.Backend = cluster.BackendMock
	if err := m.admit(mock, ""); err != nil {
		t.Errorf("no weights at all: %v", err)
	}
	m.memory = func() (int64, int64) { return 0, 0 }
	if err := m.admit(as, ""); err != nil {
		t.Errorf("in memory of unknown size: %v", err)
	}
	decode := as
	decode.Role, decode.Engine.KVBlocks = cluster.RoleDecode, 4
	m.memory = func() (int64, int64) { return 64 << 30, 64 << 30 }
	if m.keyOf(as) == m.keyOf(decode) {
		t.Error("the tower alone and the whole model are one copy")
	}
	sm, err := m.shareOf(t.Context(), m.keyOf(as), m.a.devices["cpu:0"], func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	letGo := m.hold(holding{"worker-1", "cpu:0", m.keyOf(as), 0})
	if o := m.occupied("cpu:0", "worker-1", m.keyOf(as)); o.freed != 0 || o.later != 0 {
		t.Errorf("in place of a worker that has packed nothing: %+v", o)
	}
	if o := m.occupied("cpu:0", "worker-2", m.keyOf(as)); o.later != 4<<20 {
		t.Errorf("beside a worker that has packed nothing: %+v", o)
	}
	pack(t, sm, m)
	if o := m.occupied("cpu:0", "worker-1", m.keyOf(as)); o.freed != 4<<20 || o.later != 0 {
		t.Errorf("in place of a worker that has packed the tower: %+v", o)
	}
	m.memory = func() (int64, int64) { return 1, 4 << 20 }
	as.Name = "worker-2"
	if err := m.admit(as, ""); err != nil {
		t.Errorf("a second one of the same tower: %v", err)
	}
	letGo()
	m.release(m.keyOf(as), sm)
}

// The device says what it packs of a tower: nothing of one whose images cannot be prepared, and
// no more than the encoder packs.
func TestTowerBytes(t *testing.T) {
	m := testModels(t)
	device := m.a.devices["cpu:0"].(cpuDevice)
	seer := modeltest.Open(t, modeltest.Vision()["llava"])
	if n := towerBytes(device, seer); n != 0 || device.ISA() != "portable" && device.EncoderBytes(seer) == 0 {
		t.Errorf("%d bytes without a file that says how images are prepared", n)
	}
	mod, err := model.Open(seeing(t), model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer mod.Close()
	if n := towerBytes(device, mod); n != device.EncoderBytes(mod) {
		t.Errorf("%d bytes, the encoder takes %d", n, device.EncoderBytes(mod))
	}
	if n := towerBytes(gpuDevice{}, mod); n != 0 {
		t.Errorf("%d bytes on a GPU, which encodes nothing", n)
	}
}

// A worker that computes prompts encodes images that no encode worker does. The memory for that
// is kept free from its start, although nothing is packed before the first image.
func TestAdmitCountsTowersOfOthers(t *testing.T) {
	const tower, blocks = 6 << 20, 2000 // of 1,536 bytes
	m := testTowers(t, tower)
	dir := seeing(t)
	as := on(dir, "cpu:0")
	as.Role, as.Engine.KVBlocks = cluster.RoleDecode, blocks
	mod, err := model.Open(dir, model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	weights := m.a.devices["cpu:0"].weightBytes(mod)
	if err := mod.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := m.load(t.Context(), as, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	block := l.Backend.Info().KV.BlockBytes()
	give(t, l)

	// Alone: all three have to fit.
	need := weights + tower + blocks*block
	for _, short := range []int64{0, 1} {
		m.memory = func() (int64, int64) { return need - short, need }
		if err := m.admit(as, ""); (err == nil) != (short == 0) {
			t.Errorf("%d bytes too few: %v", short, err)
		}
	}
	m.memory = func() (int64, int64) { return weights + tower - 1, need }
	for what, try := range map[string]func() error{
		"admit": func() error { return m.admit(as, "") },
		"load":  func() error { _, err := m.load(t.Context(), as, func(float64) {}); return err },
	} {
		if err := try(); !errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), ", 6.0 MiB of that for its vision tower,") {
			t.Errorf("%s without memory for the tower: %v", what, err)
		}
	}

	// Beside one that has not seen an image: what is free is not all free.
	m.memory = func() (int64, int64) { return need, 2 * need }
	if l, err = m.load(t.Context(), as, func(float64) {}); err != nil {
		t.Fatal(err)
	}
	second := as
	second.Name = "worker-2"
	for free, want := range map[int64]bool{tower + blocks*block: true, tower + blocks*block - 1: false} {
		m.memory = func() (int64, int64) { return free, 2 * need }
		if err := m.admit(second, ""); (err == nil) != want {
			t.Errorf("beside it, %d bytes free: %v", free, err)
		}
	}
	// Promised pools count against all memory, and the tower with them.
	for most, want := range map[int64]bool{tower + 2*blocks*block: true, tower + 2*blocks*block - 1: false} {
		m.memory = func() (int64, int64) { return 2 * need, most }
		if err := m.admit(second, ""); (err == nil) != want {
			t.Errorf("beside it, of %d bytes: %v", most, err)
		}
	}
	// Once the tower is packed, the system counts it itself.
	pack(t, m.shared[m.keyOf(as)], m)
	m.memory = func() (int64, int64) { return blocks * block, 2 * need }
	if err := m.admit(second, ""); err != nil {
		t.Errorf("beside one that has seen an image: %v", err)
	}
	give(t, l)
}

// Memory that others have been promised is not free, though nobody has touched it yet.
// What a worker has is free for the one in its place.
func TestAdmitCountsPools(t *testing.T) {
	m := testModels(t)
	dir := modeltest.Generate(t, modeltest.Spec{Layers: 1, Hidden: 32, Heads: 2, FFN: 64, DType: "bf16"})
	m.memory = func() (int64, int64) { return 10 << 20, 10 << 20 }
	as := on(dir, "cpu:0")
	load := func(name string, blocks int) (func(), error) {
		as.Name, as.Engine.KVBlocks = name, blocks
		l, err := m.load(t.Context(), as, func(float64) {})
		if err != nil {
			return nil, err
		}
		return func() { give(t, l); l.Release() }, nil
	}
	letGo, err := load("worker-1", 3000) // of 2 KiB
	if err != nil {
		t.Fatal(err)
	}
	if _, err := load("worker-2", 3000); !errors.Is(err, ErrMemory) {
		t.Errorf("a second pool of six tenths of the memory: %v", err)
	}
	as.Name = "worker-2"
	if err := m.admit(as, "worker-1"); err != nil {
		t.Errorf("in the place of the first: %v", err)
	}
	as.Device = "cpu:1"
	if err := m.admit(as, ""); !errors.Is(err, ErrMemory) {
		t.Errorf("on another device of the same memory: %v", err)
	}
	as.Device, as.Engine.KVBlocks = "cpu:0", 6000
	if err := m.admit(as, "worker-1"); !errors.Is(err, ErrMemory) {
		t.Errorf("more than all memory in the place of the first: %v", err)
	}
	letGo()
	letGo2, err := load("worker-2", 3000)
	if err != nil {
		t.Fatalf("after the first has gone: %v", err)
	}
	letGo2()
}

// A worker whose model others have loaded will share that: nothing is read for it, however
// the files are by now. If it is the last one, it will have to read them.
func TestAdmitReadsNothingOfALoadedModel(t *testing.T) {
	m := testModels(t)
	dir := modeltest.Generate(t, modeltest.Spec{Layers: 1, Hidden: 32, Heads: 2, FFN: 64, DType: "bf16"})
	as := on(dir, "cpu:0")
	l, err := m.load(t.Context(), as, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := m.admit(as, "worker-2"); err != nil {
		t.Errorf("beside another worker: %v", err)
	}
	if err := m.admit(as, as.Name); err == nil || !strings.Contains(err.Error(), "tokenizer.json") {
		t.Errorf("in the place of the only one: %v", err)
	}
	as.Device = "cpu:1"
	if err := m.admit(as, "worker-2"); err == nil || !strings.Contains(err.Error(), "tokenizer.json") {
		t.Errorf("on another device: %v", err)
	}
	give(t, l)
	if n := m.held(); n > 0 {
		t.Errorf("%d models are held", n)
	}
}

// A worker that serves declines a change that is impossible, and goes on; what it is told
// next is taken from there.
func TestWorkerDeclines(t *testing.T) {
	t.Parallel()
	n := startTestNode(t)
	n.opts.Admit = func(as cluster.Assignment, instead string) error {
		if instead != as.Name {
			t.Errorf("asked about %s in the place of %s", as.Name, instead)
		}
		if as.Engine.MaxSeqs == 7 || as.Starts == 1 {
			return errors.New("impossible")
		}
		return nil
	}
	n.assign()
	first := n.reaches(cluster.StateReady)
	declines := func(generation int64) {
		t.Helper()
		patience.Until(t, "it declines", func() bool { st, _ := n.stored(); return st.Declined.Generation == generation })
		st, _ := n.stored()
		if st.State != cluster.StateReady || st.InstanceID != first.InstanceID || st.Generation == generation || st.Declined.Why != "impossible" || n.loads.count() != 1 {
			t.Errorf("%+v after %d loads", st, n.loads.count())
		}
	}
	n.assign(func(a *cluster.Assignment) { a.Engine.MaxSeqs = 7; a.Generation++ })
	declines(2)
	n.assign(func(a *cluster.Assignment) { a.Engine.MaxSeqs = 0; a.Generation++ }) // as the controller does
	patience.Until(t, "it is as assigned", func() bool { st, _ := n.stored(); return st.Generation == 3 })
	n.assign(restart)
	declines(4)
	n.assign(func(a *cluster.Assignment) { a.Starts = 0; a.Generation++ })
	patience.Until(t, "it is as assigned", func() bool { st, _ := n.stored(); return st.Generation == 5 })
	n.assign(func(a *cluster.Assignment) { a.Engine.MaxSeqs = 8; a.Generation++ })
	patience.Until(t, "what is possible is done", func() bool {
		st, _ := n.stored()
		return st.Generation == 6 && st.State == cluster.StateReady && n.loads.count() == 2
	})
}

// An encode worker of a model without a vision tower is not started: it says why on screen,
// and takes no lease.
func TestEncodeWorkerIsDeclined(t *testing.T) {
	t.Parallel()
	n := startTestNode(t)
	n.opts.Admit = func(as cluster.Assignment, instead string) error {
		if as.Role != cluster.RoleEncode || instead != "" {
			t.Errorf("asked about a %s worker in the place of %q", as.Role, instead)
		}
		return errors.New("no vision tower")
	}
	n.assign(func(a *cluster.Assignment) { a.Role = cluster.RoleEncode })
	if st := n.reaches(cluster.StateFailed); st.Role != cluster.RoleEncode || st.Reason != "no vision tower" || st.InstanceID != 0 || st.RetryAt.IsZero() || n.loads.count() != 0 {
		t.Errorf("%+v after %d loads", st, n.loads.count())
	}
	n.assign(func(a *cluster.Assignment) { a.Role = cluster.RoleDecode; a.Generation++ })
	if st := n.reaches(cluster.StateReady); st.Role != cluster.RoleDecode {
		t.Errorf("%+v", st)
	}

	// Memory may come.
	full := &Agent{opts: Options{Admit: func(cluster.Assignment, string) error { return noMemory("none") }}}
	if err := full.declines(cluster.Assignment{Role: cluster.RoleEncode}); err != nil {
		t.Error(err)
	}
}

// A successor without room says whether there would be in the place of the other.
func TestFitsAlone(t *testing.T) {
	t.Parallel()
	n := startTestNode(t)
	n.loads.set(func(l *loads) { l.err = ErrMemory })

	n.opts.Admit = func(as cluster.Assignment, instead string) error {
		if instead == "worker-0" {
			return nil
		}
		return ErrMemory
	}
	n.assign(func(a *cluster.Assignment) { a.Replaces = "worker-0" })
	if st := n.reaches(cluster.StateFailed); !st.NoMemory || !st.FitsAlone {
		t.Errorf("%+v", st)
	}
	n.assign(func(a *cluster.Assignment) { a.Replaces = ""; a.Generation++ })
	patience.Until(t, "nobody to follow", func() bool {
		st, _ := n.stored()
		return st.State == cluster.StateFailed && st.Generation == 2 && st.NoMemory && !st.FitsAlone
	})
	n.loads.set(func(l *loads) {
		l.err, l.gate = nil, func(context.Context) error { return errors.New("another reason") }
	})
	n.assign(func(a *cluster.Assignment) { a.Replaces = "worker-0"; a.Generation++ })
	patience.Until(t, "another reason", func() bool {
		st, _ := n.stored()
		return st.State == cluster.StateFailed && st.Generation == 3 && !st.NoMemory && !st.FitsAlone
	})
}
