package module_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/cuda/module"
	"github.com/dynctl/dynctl/internal/lab/cuda/fake"
	"github.com/dynctl/dynctl/internal/lab/cuda/kerneltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a device with a compute capability whose driver knows kernels.
func open(t *testing.T, major, minor int, ks ...fake.Kernel) (*device.Device, *fake.Driver) {
	t.Helper()
	f := fake.New(fake.Options{Kernels: ks, Devices: []driver.Properties{
		{Name: "Fake GPU", Major: major, Minor: minor, MemoryBytes: 1 << 24, SharedBytes: 227 << 10, Multiprocessors: 132},
	}})
	d, err := device.Open(f, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if err := f.Close(); err != nil && d.Err() == nil {
			t.Error(err)
		}
	})
	return d, f
}

func image(name, target string, entries ...string) module.Image {
	text := ".version 7.8\n.target " + target + "\n"
	for _, e := range entries {
		text += ".visible .entry " + e + "() { ret; }\n"
	}
	return module.Image{Name: name, PTX: []byte(text), Kernels: entries}
}

func kernel(name string, r driver.Resources) fake.Kernel {
	return fake.Kernel{Name: name, Resources: r, Run: func(*fake.Call) {}}
}

// The kernels of this program load on every device that they are for, within their
// limits, and can be launched.
func TestBuiltin(t *testing.T) {
	twins, err := kerneltest.Kernels()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		major, minor int
		portable     bool
	}{{8, 0, false}, {8, 9, false}, {9, 0, false}, {9, 0, true}, {9, 1, false}, {10, 0, false}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			d, _ := open(t, c.major, c.minor, twins...)
			// The twins' resources are those of sm_90, which some kernels exceed on sm_80.
			s, err := module.Load(t.Context(), d, module.Builtin(), module.Options{Strict: c.major >= 9, Portable: c.portable})
			if err != nil {
				t.Fatal(err)
			}
			functions := s.Functions()
			units := 0
			for _, m := range kernels.Modules() {
				// Those for one device are there on it, unless they are not wanted.
				want := !kernels.Exact(m.Name) || c.major == 9 && c.minor == 0 && !c.portable
				if want {
					units++
				}
				for _, k := range m.Kernels {
					if (functions[k] != 0) != want {
						t.Errorf("kernel %s of %s is loaded: %t", k, m.Name, !want)
					}
				}
			}
			if len(s.Units()) != units {
				t.Errorf("units %+v", s.Units())
			}
			for _, k := range s.Kernels() {
				if k.Hash == "" || k.Target.Capability < 80 || k.Resources.Registers == 0 || k.Unit == "" {
					t.Errorf("%+v", k)
				}
			}
			multiply(t, d, functions)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTargets(t *testing.T) {
	for capability, want := range map[[2]int]string{{8, 0}: "sm_80", {8, 9}: "sm_80", {9, 0}: "sm_80 sm_90a", {10, 0}: "sm_80"} {
		got, err := module.Targets(driver.Properties{Major: capability[0], Minor: capability[1]})
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("compute capability %d: %q, %v, want %s", capability, got, err, want)
		}
	}
	if got, err := module.Targets(driver.Properties{Major: 7, Minor: 5}); !errors.Is(err, module.ErrNoVariant) {
		t.Errorf("a device that is too old: %q, %v", got, err)
	}
}

// Where a device lets launches overlap, the kernels of all units wait for those before them;
// elsewhere they are what they are.
func TestOverlap(t *testing.T) {
	twins, err := kerneltest.Kernels()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		major   int
		version driver.Version
		want    string
	}{{9, 13000, "sm_90 sm_90a"}, {10, 12030, "sm_90"}, {9, 12020, "sm_80 sm_90a"}, {8, 13000, "sm_80"}} {
		f := fake.New(fake.Options{Kernels: twins, Version: c.version, Devices: []driver.Properties{{Name: "Fake GPU", Major: c.major, MemoryBytes: 1 << 24, SharedBytes: 227 << 10, Multiprocessors: 132}}})
		d, err := device.Open(f, 0)
		if err != nil {
			t.Fatal(err)
		}
		s, err := module.Load(t.Context(), d, module.Builtin(), module.Options{Overlap: true, Strict: c.major >= 9})
		if err != nil {
			t.Fatal(err)
		}
		var targets []string
		for _, u := range s.Units() {
			targets = append(targets, u.Target.String())
		}
		slices.Sort(targets)
		if got := strings.Join(slices.Compact(targets), " "); got != c.want || s.Overlaps() != (strings.HasPrefix(c.want, "sm_90")) {
			t.Errorf("compute capability %d.0, CUDA %s: kernels for %s, launches overlap: %t", c.major, c.version, got, s.Overlaps())
		}
		if err := errors.Join(s.Close(), d.Close(t.Context()), f.Close()); err != nil {
			t.Error(err)
		}
	}
}

// A device with less shared memory goes without the kernels that need more.
func TestUnfit(t *testing.T) {
	twins, err := kerneltest.Kernels()
	if err != nil {
		t.Fatal(err)
	}
	most := 0
	for _, k := range twins {
		most = max(most, k.Resources.SharedBytes+kernels.DynamicShared(k.Name))
	}
	if most <= 48<<10 {
		t.Fatalf("no kernel needs more than %d bytes", most)
	}
	f := fake.New(fake.Options{Kernels: twins, Devices: []driver.Properties{{Name: "Fake GPU", Major: 9, MemoryBytes: 1 << 24, SharedBytes: most - 1}}})
	d, err := device.Open(f, 0)
	if err != nil {
		t.Fatal(err)
	}
	s, err := module.Load(t.Context(), d, module.Builtin(), module.Options{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	functions := s.Functions()
	if len(s.Unfit()) == 0 || len(functions) == 0 || len(s.Unfit())+len(functions) != len(twins) {
		t.Errorf("%d kernels do not fit and %d do, of %d", len(s.Unfit()), len(functions), len(twins))
	}
	for _, u := range s.Unfit() {
		if functions[u.Name] != 0 || !strings.Contains(u.Why, fmt.Sprintf("it needs %d bytes of shared memory, and a block has %d", most, most-1)) {
			t.Errorf("%+v", u)
		}
	}
	if err := errors.Join(s.Close(), d.Close(t.Context()), f.Close()); err != nil {
		t.Error(err)
	}
}

// multiply launches the kernel that asks for the most shared memory.
func multiply(t *testing.T, d *device.Device, functions map[string]uint64) {
	t.Helper()
	const tokens, rows, in = 3, 5, 8
	a, err := d.Arena(device.Workspace, 4096)
	if err != nil {
		t.Fatal(err)
	}
	take := func(values int64) uint64 {
		r, err := a.Take(2 * values)
		if err != nil {
			t.Fatal(err)
		}
		return r.Address
	}
	s, err := d.NewStream(device.Urgent)
	if err != nil {
		t.Fatal(err)
	}
	e, err := d.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	q := kernels.NewQueue(d.Driver(), functions, d.Index(), s.Handle())
	op := kernels.MatMul{Out: take(tokens * rows), X: take(tokens * in), W: take(rows * in), Tokens: tokens, Rows: rows, In: in}
	if err := errors.Join(s.Set(a.All(), 0), q.GEMM(op), s.Record(e), e.Wait(t.Context())); err != nil {
		t.Error(err)
	}
}

func TestVariants(t *testing.T) {
	both := []module.Image{image("product", "sm_80", "product"), image("product", "sm_90a", "product"), image("norm", "sm_80", "norm")}
	for _, c := range []struct {
		major, minor int
		product      string
	}{{8, 0, "sm_80"}, {8, 9, "sm_80"}, {9, 0, "sm_90a"}, {10, 0, "sm_80"}, {12, 1, "sm_80"}} {
		for range 2 { // in either order
			slices.Reverse(both)
			d, _ := open(t, c.major, c.minor, kernel("product", driver.Resources{}), kernel("norm", driver.Resources{}))
			s, err := module.Load(t.Context(), d, both, module.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if k := s.Kernels(); len(k) != 2 || k[1].Name != "product" || k[1].Target.String() != c.product || k[0].Target.String() != "sm_80" {
				t.Errorf("compute capability %d.%d: %+v", c.major, c.minor, k)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	d, _ := open(t, 7, 5)
	_, err := module.Load(t.Context(), d, both, module.Options{})
	if !errors.Is(err, module.ErrNoVariant) || !strings.Contains(err.Error(), "Fake GPU has compute capability 7.5, and ") {
		t.Errorf("on a device that is too old: %v", err)
	}
	d, _ = open(t, 9, 1)
	if _, err := module.Load(t.Context(), d, []module.Image{image("product", "sm_90a", "product")}, module.Options{}); !errors.Is(err, module.ErrNoVariant) {
		t.Errorf("kernels for exactly another device: %v", err)
	}
}

func TestLimits(t *testing.T) {
	images := []module.Image{image("gemm", "sm_80", "gemm")}
	limits := []kernels.Limits{{Kernel: "gemm", Arch: "sm_80", Threads: 256, Registers: 100}, {Kernel: "gemm", Arch: "sm_90", Threads: 256, Registers: 128, StackBytes: 8}}
	within := driver.Resources{Registers: 128, LocalBytes: 8, MaxThreads: 256}
	for name, c := range map[string]struct {
		major  int
		r      driver.Resources
		excess string
		err    string
	}{
		"within":                        {9, within, "", ""},
		"later than the table":          {10, within, "", ""},
		"another architecture's limits": {8, within, "128 registers instead of 100, 8 bytes of local memory instead of 0", ""},
		"registers":                     {9, driver.Resources{Registers: 129, MaxThreads: 256}, "129 registers instead of 128", ""},
		"spills":                        {9, driver.Resources{Registers: 128, LocalBytes: 64, MaxThreads: 256}, "64 bytes of local memory instead of 8", ""},
		"too few threads":               {9, driver.Resources{Registers: 255, MaxThreads: 224}, "", "room for blocks of 224 threads, and it is launched with up to 256"},
	} {
		t.Run(name, func(t *testing.T) {
			d, f := open(t, c.major, 0, kernel("gemm", c.r))
			s, err := module.Load(t.Context(), d, images, module.Options{Limits: limits})
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), "gemm (sm_80, PTX "+images[0].Hash()+")") {
					t.Errorf("Load() = %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(s.Kernels()[0].Excess, ", "); got != c.excess {
				t.Errorf("beyond its limits: %q, want %q", got, c.excess)
			}
			_, err = module.Load(t.Context(), d, images, module.Options{Limits: limits, Strict: true})
			if (c.excess == "") == (err != nil) || err != nil && !strings.Contains(err.Error(), "it takes "+c.excess) {
				t.Errorf("strict: %v", err)
			}
			if c.excess == "" { // the second set stays loaded
				if err := f.Close(); err == nil || !strings.Contains(err.Error(), "2 modules are left") {
					t.Errorf("Close() of the driver = %v", err)
				}
				d.Abandon(errors.New("its driver was closed"))
				return
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// What cannot be loaded is named, with the words of the compiler, and leaves nothing.
func TestLoadFails(t *testing.T) {
	good := image("norm", "sm_80", "norm")
	broken := image("gemm", "sm_80", "gemm")
	broken.PTX = []byte(strings.Replace(string(broken.PTX), ".version", ".wersion", 1))
	mute := module.Image{Name: "gemm", PTX: []byte("no kernels at all")}
	for name, c := range map[string]struct {
		images []module.Image
		want   []string
	}{
		"a kernel that does not compile": {[]module.Image{good, broken}, []string{"load kernels on device 0 (Fake GPU): gemm (sm_80, PTX ", "refuses the kernels: no .version"}},
		"no target":                      {[]module.Image{good, mute}, []string{"kernels gemm name no target"}},
		"a kernel that is not there":     {[]module.Image{good, image("other", "sm_80", "unknown")}, []string{"other (sm_80, PTX ", "kernel unknown"}},
		"a name twice":                   {[]module.Image{good, image("other", "sm_80", "norm")}, []string{"has one of that name, too"}},
	} {
		t.Run(name, func(t *testing.T) {
			d, _ := open(t, 9, 0, kernel("norm", driver.Resources{}), kernel("gemm", driver.Resources{}))
			_, err := module.Load(t.Context(), d, c.images, module.Options{})
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("Load() = %v, want %q", err, want)
				}
			}
		})
	}
	t.Run("too late", func(t *testing.T) {
		d, _ := open(t, 9, 0, kernel("norm", driver.Resources{}))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := module.Load(ctx, d, []module.Image{good}, module.Options{}); !errors.Is(err, context.Canceled) {
			t.Errorf("Load() = %v", err)
		}
	})
	t.Run("a lost device", func(t *testing.T) {
		d, f := open(t, 9, 0, kernel("norm", driver.Resources{}))
		f.Lose(0, driver.UncorrectableECC)
		if _, err := module.Load(t.Context(), d, []module.Image{good}, module.Options{}); !errors.Is(err, device.ErrLost) {
			t.Errorf("Load() = %v", err)
		}
	})
}

func FuzzTarget(f *testing.F) {
	f.Add(".target sm_90a\n")
	f.Add(".version 7.8\n.target sm_80, debug\n")
	f.Fuzz(func(t *testing.T, ptx string) {
		target, err := module.Image{PTX: []byte(ptx)}.Target()
		if err != nil {
			return
		}
		again, err := module.Image{PTX: []byte(".target " + target.String())}.Target()
		if err != nil || again != target {
			t.Errorf("%q is for %s, which is read as %s, %v", ptx, target, again, err)
		}
	})
}
