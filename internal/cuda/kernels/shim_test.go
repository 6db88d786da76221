package kernels_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/dynlib"
	"github.com/dynctl/dynctl/internal/lab/cuda/fake"
)

// shim is the library that runs kernels on the host; see shim/shim.h.
type shim struct {
	launch    uintptr
	functions map[string]uint64
}

// openShim compiles the kernels for the host, once. The error says what is missing.
var openShim = sync.OnceValues(func() (*shim, error) {
	var units []shimUnit
	for _, m := range kernels.Modules() {
		units = append(units, shimUnit{m.Name, fmt.Sprintf("#include \"%s.cu\"\n", m.Name), m.Kernels})
	}
	return compileShim(units)
})

// shimUnit is a source for the shim. A name may mean something else in every one.
type shimUnit struct {
	name, text string
	kernels    []string
}

// compileShim compiles units. A kernel whose name is that of one before it is known as
// unit/kernel.
func compileShim(units []shimUnit) (*shim, error) {
	if !dynlib.Enabled {
		return nil, dynlib.ErrCompiledOut
	}
	compiler, err := hostCompiler()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "kernels")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	var text, table strings.Builder
	text.WriteString("#include \"shim.cc\"\n#include \"sm90a.h\"\n#include \"async.cc\"\n")
	headers, err := filepath.Glob("src/*.h")
	if err != nil {
		return nil, err
	}
	for _, h := range headers {
		fmt.Fprintf(&text, "#include \"%s\"\n", filepath.Base(h))
	}
	names := map[string]bool{}
	for _, u := range units {
		fmt.Fprintf(&text, "namespace %s_source {\n%s}\n", u.name, u.text)
		for _, k := range u.kernels {
			known := k
			if names[k] {
				known = u.name + "/" + k
			}
			names[known] = true
			fmt.Fprintf(&table, "\tSHIM_KERNEL(\"%s\", %s_source, %s)\n", known, u.name, k)
		}
	}
	fmt.Fprintf(&text, "extern \"C\" Start shim_kernel(const char *wanted) {\n%s\treturn nullptr;\n}\n", &table)
	source, library := filepath.Join(dir, "kernels.cc"), filepath.Join(dir, "kernels.so")
	if err := os.WriteFile(source, []byte(text.String()), 0o644); err != nil {
		return nil, err
	}
	cmd := exec.Command(compiler, "-std=c++17", "-Og", "-w", "-fPIC", "-shared", "-DDYNCTL_SHIM", "-Ishim", "-Isrc", "-o", library, source)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %w\n%s", errCompile, err, out)
	}
	lib, err := dynlib.Open(library)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errCompile, err)
	}
	s := &shim{functions: map[string]uint64{}}
	var find uintptr
	if err := lib.Bind(map[string]*uintptr{"shim_launch": &s.launch, "shim_kernel": &find}); err != nil {
		return nil, fmt.Errorf("%w: %w", errCompile, err)
	}
	for known := range names {
		name := append([]byte(known), 0)
		s.functions[known] = uint64(dynlib.Call(find, uintptr(unsafe.Pointer(&name[0]))))
	}
	return s, nil
}

var errCompile = errors.New("the kernels do not compile for the host")

func hostCompiler() (string, error) {
	for _, name := range []string{os.Getenv("CXX"), "g++", "clang++"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("no C++ compiler: install g++")
}

// hostDevice is memory and kernels of the host.
type hostDevice struct {
	*testing.T
	*shim
	seed   uint64
	allocs []hostMemory
}

// hostMemory ends where nothing may be touched, and begins with canaries.
type hostMemory struct{ mapped, used []byte }

const canary = 0xa5

func newHostDevice(t *testing.T, seed uint64) *hostDevice {
	t.Helper()
	s, err := openShim()
	if errors.Is(err, errCompile) {
		t.Fatal(err)
	}
	if err != nil {
		t.Skip(err)
	}
	d := &hostDevice{T: t, shim: s, seed: seed}
	t.Cleanup(d.close)
	return d
}

func (d *hostDevice) close() {
	for _, m := range d.allocs {
		before := m.mapped[:len(m.mapped)-syscall.Getpagesize()-(len(m.used)+15)&^15]
		if slices.ContainsFunc(before, func(b byte) bool { return b != canary }) {
			d.Error("memory before an operand was written")
		}
		if err := syscall.Munmap(m.mapped); err != nil {
			d.Error(err)
		}
	}
}

// Alloc implements kerneltest.Memory.
func (d *hostDevice) Alloc(n int) (uint64, []byte, error) {
	page := syscall.Getpagesize()
	room := (n+15)&^15 + page // one page of canaries
	room = (room + page - 1) / page * page
	mapped, err := syscall.Mmap(-1, 0, room+page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return 0, nil, err
	}
	for i := range mapped[:room] {
		mapped[i] = canary
	}
	if err := syscall.Mprotect(mapped[room:], syscall.PROT_NONE); err != nil {
		return 0, nil, err
	}
	used := mapped[room-(n+15)&^15:][:n:n]
	d.allocs = append(d.allocs, hostMemory{mapped, used})
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(used)))), used, nil
}

func (d *hostDevice) queue() *kernels.Queue { return kernels.NewQueue(d, d.functions, 0, 1) }

func (d *hostDevice) finish() {}

// TensorMapEncode implements kernels.Launcher, with maps that the shim reads.
func (d *hostDevice) TensorMapEncode(_ int, m *driver.TensorMap) (driver.EncodedTensorMap, error) {
	return fake.EncodeTensorMap(m)
}

// LaunchKernel implements kernels.Launcher; the kernel has run when it returns.
func (d *hostDevice) LaunchKernel(_ int, l *driver.Launch, _ uint64) error {
	geometry := [7]int32{
		int32(l.Grid.X), int32(l.Grid.Y), int32(l.Grid.Z),
		int32(l.Block.X), int32(l.Block.Y), int32(l.Block.Z), int32(l.SharedBytes),
	}
	args := l.Args.Bytes()
	wrong := dynlib.Call(d.launch, uintptr(l.Function), uintptr(unsafe.Pointer(&geometry[0])), uintptr(unsafe.Pointer(unsafe.SliceData(args))), uintptr(len(args)), uintptr(d.seed))
	if text := ctext(wrong); text != "" {
		return errors.New(text)
	}
	return nil
}

// ctext is a text of C that is not on the Go heap.
func ctext(address uintptr) string {
	p := *(*unsafe.Pointer)(unsafe.Pointer(&address))
	n := 0
	for *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}
