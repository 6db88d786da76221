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

// An encode worker needs memory for the vision tower alone, whatever the rest of the model
// needs, and none for one that others have loaded; it shares nothing with workers of the
// whole model.
func TestAdmitEncode(t *testing.T) {
	m := testModels(t)
	dir := modeltest.Generate(t, modeltest.Vision()["smolvlm"])
	m.tower = func(*model.Model) (int64, bool) { return 4 << 20, true }
	as := on(dir, "cpu:0")
	as.Role, as.Engine = cluster.RoleEncode, cluster.EngineSpec{}
	m.memory = func() (int64, int64) { return 4 << 20, 4 << 20 }
	if err := m.admit(as, ""); err != nil {
		t.Errorf("a tower of all memory: %v", err)
	}
	decode := as
	decode.Role, decode.Engine.KVBlocks = cluster.RoleDecode, 1<<20
	if err := m.admit(decode, ""); !errors.Is(err, ErrMemory) {
		t.Errorf("a decode worker with a pool of more: %v", err)
	}
	m.memory = func() (int64, int64) { return 4<<20 - 1, 4 << 20 }
	if err := m.admit(as, ""); !errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), "the vision tower of "+dir) {
		t.Errorf("a tower of more than all memory: %v", err)
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
	decode.Engine.KVBlocks = 4
	m.memory = func() (int64, int64) { return 64 << 30, 64 << 30 }
	if m.keyOf(as) == m.keyOf(decode) {
		t.Error("the tower alone and the whole model are one copy")
	}
	sm, err := m.shareOf(t.Context(), m.keyOf(as), m.a.devices["cpu:0"], func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	letGo := m.hold(holding{"worker-1", "cpu:0", m.keyOf(as), 0})
	if o := m.occupied("cpu:0", "worker-1", m.keyOf(as)); o.freed != 4<<20 {
		t.Errorf("in its place %d bytes are free", o.freed)
	}
	m.memory = func() (int64, int64) { return 1, 4 << 20 }
	as.Name = "worker-2"
	if err := m.admit(as, ""); err != nil {
		t.Errorf("a second one of the same tower: %v", err)
	}
	letGo()
	m.release(m.keyOf(as), sm)
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
