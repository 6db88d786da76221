package lt_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/dynlib"
	"github.com/dynctl/dynctl/internal/dynlib/dynlibtest"
	"github.com/dynctl/dynctl/internal/lab/cuda/kerneltest"
	"github.com/dynctl/dynctl/internal/lab/cuda/lt"
)

// What the library in C is told, and expects.
const (
	workspace      = 0x10000
	workspaceBytes = 1 << 20
	stream         = 0x77
)

// host is memory off the Go heap, which the library in C takes for that of a device.
type host struct{ t *testing.T }

func (h host) Alloc(n int) (uint64, []byte, error) {
	b, err := syscall.Mmap(-1, 0, max(n, 1), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return 0, nil, err
	}
	h.t.Cleanup(func() {
		if err := syscall.Munmap(b); err != nil {
			h.t.Error(err)
		}
	})
	return uint64(uintptr(unsafe.Pointer(&b[0]))), b[:n], nil
}

func open(t *testing.T, options ...string) (*lt.Library, func(name string) int) {
	t.Helper()
	path := dynlibtest.Compile(t, "testdata/libcublaslt.c", options...)
	l, err := lt.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	lib, err := dynlib.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return l, func(name string) int {
		var f uintptr
		if err := lib.Bind(map[string]*uintptr{name: &f}); err != nil {
			t.Fatal(err)
		}
		return int(int32(dynlib.Call(f)))
	}
}

// Products are those of the functions in Go, whatever the shape; each shape is looked up
// once, and nothing is left.
func TestGEMM(t *testing.T) {
	l, count := open(t)
	if l.Version() != 120402 || !strings.HasSuffix(l.Name(), ".so") {
		t.Errorf("%s is of release %d", l.Name(), l.Version())
	}
	h, err := l.NewHandle(workspace, workspaceBytes)
	if err != nil {
		t.Fatal(err)
	}
	shapes := []kernels.MatMul{{Tokens: 1, Rows: 5, In: 8}, {Tokens: 7, Rows: 3, In: 24}, {Tokens: 3, Rows: 9, In: 16, Wide: true}, {Tokens: 7, Rows: 3, In: 24}, {Rows: 3, In: 8}}
	for i, o := range shapes {
		multiply := func(m kerneltest.Memory, run func(o kernels.MatMul) error) kerneltest.Output {
			size := 2
			if o.Wide {
				size = 4
			}
			l := kerneltest.NewLab(m, "gemm")
			o := o
			o.X, o.W, o.Out = l.Values(o.Tokens*o.In+8, 1), l.Values(o.Rows*o.In, 1), l.Out("out", o.Tokens*o.Rows*size+8, kerneltest.SumOf(o.In, o.Wide))
			if err := errors.Join(l.Err(), run(o)); err != nil {
				t.Fatalf("shape %d: %v", i, err)
			}
			return l.Outputs[0]
		}
		twin, err := kerneltest.NewTwin()
		if err != nil {
			t.Fatal(err)
		}
		want := multiply(twin, func(o kernels.MatMul) error { return errors.Join(twin.Queue().GEMM(o), twin.Finish()) })
		got := multiply(host{t}, func(o kernels.MatMul) error { return h.GEMM(o, stream) })
		if err := got.Differs(want); err != nil {
			t.Errorf("shape %d: %v", i, err)
		}
	}
	if n := count("test_asked"); n != 3 {
		t.Errorf("the library was asked %d times for a way to compute three shapes", n)
	}
	for what, o := range map[string]kernels.MatMul{
		"another type":   {Out: 16, X: 16, W: 16, Scales: 16, Tokens: 1, Rows: 2, In: 32, Type: kernels.Q8_0},
		"a bias":         {Out: 16, X: 16, W: 16, Bias: 16, Tokens: 1, Rows: 1, In: 8},
		"ragged rows":    {Out: 16, X: 16, W: 16, Tokens: 1, Rows: 1, In: 12},
		"no weights":     {Out: 16, X: 16, Tokens: 1, Rows: 1, In: 8},
		"an odd address": {Out: 16, X: 18, W: 16, Tokens: 1, Rows: 1, In: 8},
	} {
		if err := h.GEMM(o, stream); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if n := count("test_alive"); n != 0 {
		t.Errorf("%d things are left", n)
	}
}

// Each way of having no library, or no way to compute, has an error that says so.
func TestStates(t *testing.T) {
	if _, err := lt.Open("/nowhere/libcublasLt.so.12"); !errors.Is(err, lt.ErrNoLibrary) {
		t.Errorf("without a library: %v", err)
	}
	l, _ := open(t, "-DCREATE=1")
	if _, err := l.NewHandle(workspace, workspaceBytes); !errors.Is(err, lt.ErrUnusable) || !strings.Contains(err.Error(), "cublasLtCreate: it is not initialized") {
		t.Errorf("without a driver: %v", err)
	}
	l, count := open(t, "-DFOUND=0")
	h, err := l.NewHandle(workspace, workspaceBytes)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.GEMM(kernels.MatMul{Out: 16, X: 16, W: 16, Tokens: 2, Rows: 3, In: 8}, stream); err == nil || !strings.Contains(err.Error(), "2 tokens with 3 rows of 8 values: cuBLASLt has no algorithm") {
		t.Errorf("a shape that it does not know: %v", err)
	}
	if err := h.Close(); err != nil || count("test_alive") != 0 {
		t.Errorf("after it: %v", err)
	}
	empty := dynlibtest.Compile(t, "testdata/libcublaslt.c", "-DcublasLtMatmul=other")
	if _, err := lt.Open(empty); !errors.Is(err, lt.ErrUnusable) || !strings.Contains(err.Error(), "cublasLtMatmul") {
		t.Errorf("another library: %v", err)
	}
}
