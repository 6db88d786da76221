//go:build linux

package posix

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
)

func newAgent(t *testing.T) *nixl.Agent {
	return nixltest.Env{Transports: func() []nixl.Transport { return nil }}.Agent(t, "a", func(c *nixl.Config) { c.Storage = New(Options{}) })
}

// open opens a file that is closed with the test, after the agent.
func open(t *testing.T, spec string, size int64) *File {
	t.Helper()
	f, err := Open(spec, size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func register(t *testing.T, a *nixl.Agent, m nixl.Memory, typ nixl.MemType) *nixl.Region {
	t.Helper()
	r, err := a.Register(m, typ)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Blocks go to a file and come back, in lists and by index, in long and short pieces.
func TestRoundTrip(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for _, c := range []struct {
		n    int
		size uint64
	}{{1, 1}, {3000, 40}, {100, 32 << 10}, {3, 5<<20 + 17}, {1, 3 * callBytes}} {
		path := filepath.Join(t.TempDir(), "kv")
		f := open(t, "rw,create:"+path, 0)
		a := newAgent(t)
		mem := make(nixltest.Heap, c.n*int(c.size))
		nixltest.Fill(mem, 1)
		want := bytes.Clone(mem)
		m, r := register(t, a, mem, nixl.DRAM), register(t, a, f, nixl.FILE)
		local, from := nixltest.Blocks(rnd, m.Desc, c.n, c.size)
		remote, to := nixltest.Blocks(rnd, r.Desc, c.n, c.size)
		x := nixltest.New(t, a, nixl.Write, local, remote, a.Name(), nixl.TransferOpts{})
		nixltest.WantStatus(t, nixltest.Do(t, x), nixl.Success)
		onDisk, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := range from {
			nixltest.Same(t, onDisk[to[i]*int(c.size):][:c.size], want[from[i]*int(c.size):][:c.size])
		}
		clear(mem)
		blocks, err := a.PrepareLocal(m.Blocks(c.size))
		if err != nil {
			t.Fatal(err)
		}
		inFile, err := a.PrepareRemote(a.Name(), nixl.Run{First: r.Desc(0, c.size), Stride: c.size, Count: c.n})
		if err != nil {
			t.Fatal(err)
		}
		li, ri := make([]int32, c.n), make([]int32, c.n)
		for i := range li {
			li[i], ri[i] = int32(from[i]), int32(to[i])
		}
		x, err = a.MakeTransfer(nixl.Read, blocks, li, inFile, ri, nixl.TransferOpts{})
		if err != nil {
			t.Fatal(err)
		}
		nixltest.WantStatus(t, nixltest.Do(t, x), nixl.Success)
		nixltest.Same(t, mem, want)
		if err := r.Deregister(); err != nil {
			t.Error(err)
		}
		if st := x.Post(); st != nixl.ErrNotFound {
			t.Errorf("post with a deregistered file = %s", st)
		}
		if n := len(a.Metadata()); c.n == 1 && n > 1000 {
			t.Errorf("metadata of %d bytes", n)
		}
		_ = a.Close()
	}
}

func TestRefusals(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	f := open(t, "ro:"+path, 200)
	a := newAgent(t)
	m, r := register(t, a, make(nixltest.Heap, 4096), nixl.DRAM), register(t, a, f, nixl.FILE)
	gpu := register(t, a, nixltest.NewDevice(0, 4096), nixl.VRAM)
	plain := nixltest.Env{Transports: func() []nixl.Transport { return nil }}.Agent(t, "a")
	pm := register(t, plain, make(nixltest.Heap, 64), nixl.DRAM)
	pf := register(t, plain, f, nixl.FILE)
	for _, c := range []struct {
		name          string
		a             *nixl.Agent
		op            nixl.Op
		local, remote nixl.Desc
		opts          nixl.TransferOpts
		want          nixl.Status
	}{
		{"write to a file opened for reading", a, nixl.Write, m.Desc(0, 8), r.Desc(0, 8), nixl.TransferOpts{}, nixl.ErrNotAllowed},
		{"behind what was registered", a, nixl.Read, m.Desc(0, 8), nixl.Desc{Addr: r.Desc(193, 7).Addr, Len: 8}, nixl.TransferOpts{}, nixl.ErrNotFound},
		{"memory to memory", a, nixl.Read, m.Desc(0, 8), m.Desc(8, 8), nixl.TransferOpts{}, nixl.ErrNotSupported},
		{"device to file", a, nixl.Read, gpu.Desc(0, 8), r.Desc(0, 8), nixl.TransferOpts{}, nixl.ErrNotSupported},
		{"notification", a, nixl.Read, m.Desc(0, 8), r.Desc(0, 8), nixl.TransferOpts{HasNotify: true}, nixl.ErrNotSupported},
		{"no storage", plain, nixl.Read, pm.Desc(0, 8), pf.Desc(0, 8), nixl.TransferOpts{}, nixl.ErrNotSupported},
	} {
		if _, err := c.a.NewTransfer(c.op, []nixl.Desc{c.local}, []nixl.Desc{c.remote}, "a", c.opts); nixl.StatusOf(err) != c.want {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if _, err := a.OpenTicket(nixl.TicketSpec{Descs: []nixl.Desc{r.Desc(0, 8)}}); nixl.StatusOf(err) != nixl.ErrNotSupported {
		t.Errorf("ticket for a file: %v", err)
	}
	few := nixltest.Env{Transports: func() []nixl.Transport { return nil }}.Agent(t, "few", func(c *nixl.Config) { c.Storage, c.Limits.Descs = New(Options{}), 2 })
	fm, ff := register(t, few, make(nixltest.Heap, 64), nixl.DRAM), register(t, few, f, nixl.FILE)
	apart := func(r *nixl.Region) []nixl.Desc { return []nixl.Desc{r.Desc(0, 8), r.Desc(16, 8), r.Desc(32, 8)} }
	if _, err := few.NewTransfer(nixl.Read, apart(fm), apart(ff), "few", nixl.TransferOpts{}); nixl.StatusOf(err) != nixl.ErrInvalidParam {
		t.Errorf("three descriptors of at most two: %v", err)
	}
	nixltest.New(t, few, nixl.Read, apart(fm)[:2], apart(ff)[:2], "few", nixl.TransferOpts{})
	x := nixltest.New(t, a, nixl.Read, []nixl.Desc{m.Desc(0, 101)}, []nixl.Desc{r.Desc(0, 101)}, "a", nixl.TransferOpts{})
	nixltest.WantStatus(t, nixltest.Do(t, x), nixl.ErrBackend) // the file is shorter
	x = nixltest.New(t, a, nixl.Read, []nixl.Desc{m.Desc(0, 100)}, []nixl.Desc{r.Desc(0, 100)}, "a", nixl.TransferOpts{})
	nixltest.WantStatus(t, nixltest.Do(t, x), nixl.Success)
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if st := x.Post(); st != nixl.ErrCanceled {
		t.Errorf("post after Close = %s", st)
	}
}

func TestQuery(t *testing.T) {
	a := newAgent(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "a:b")
	if err := os.WriteFile(path, make([]byte, 77), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := a.QueryMem(t.Context(), nixl.FILE, path, "ro:"+path, filepath.Join(dir, "none"))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 || !got[0].Exists || got[0].Size != 77 || !got[1].Exists || got[1].Name != "ro:"+path || got[2].Exists {
		t.Errorf("answers = %+v", got)
	}
	if _, err := a.QueryMem(t.Context(), nixl.OBJ, path); nixl.StatusOf(err) != nixl.ErrNotSupported {
		t.Errorf("objects: %v", err)
	}
	if _, err := a.QueryMem(t.Context(), nixl.FILE, path+"/below"); err == nil {
		t.Error("a file is no directory, and nobody said so")
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	for _, c := range []struct {
		spec string
		want nixl.Status
	}{
		{"", nixl.ErrInvalidParam},
		{path, nixl.ErrInvalidParam},
		{"rw:", nixl.ErrInvalidParam},
		{"wo:" + path, nixl.ErrInvalidParam},
		{"rw,:" + path, nixl.ErrInvalidParam},
		{"rw,fast:" + path, nixl.ErrInvalidParam},
		{"rw,direct:" + path, nixl.ErrNotSupported},
		{"rw:" + path, nixl.ErrBackend}, // is not there
		{"rw,sync,create,noatime:" + path, nixl.Success},
		{"ro:" + path, nixl.Success},
	} {
		f, err := Open(c.spec, 0)
		if nixl.StatusOf(err) != c.want {
			t.Errorf("Open(%q): %v", c.spec, err)
		}
		if err == nil {
			_ = f.Close()
		}
	}
	if _, err := Open("ro:"+path, -1); nixl.StatusOf(err) != nixl.ErrInvalidParam {
		t.Errorf("negative size: %v", err)
	}
}

func FuzzParseSpec(f *testing.F) {
	for _, s := range []string{"ro:/x", "rw,create,sync:a:b", "rw,direct:/x", ":", "ro,"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		sp, err := parseSpec(s)
		if err == nil && (sp.path == "" || sp.writable != (sp.flags&os.O_RDWR != 0)) {
			t.Errorf("%q is %+v", s, sp)
		}
	})
}
