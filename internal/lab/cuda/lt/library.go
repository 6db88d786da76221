package lt

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/dynctl/dynctl/internal/dynlib"
)

// Why there is no cuBLASLt; each error of Open is one of them.
var (
	// ErrNoLibrary: libcublasLt is not there, or this program cannot load libraries.
	ErrNoLibrary = errors.New("no cuBLASLt")
	// ErrUnusable: the library is there and does not work; the text says why.
	ErrUnusable = errors.New("cuBLASLt cannot be used")
)

// libraryNames lists the library's file names, the newest first.
var libraryNames = []string{
	"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11",
	"/usr/local/cuda/lib64/libcublasLt.so",
}

// Library is the loaded library.
type Library struct {
	name    string
	version int
	fn      functions
}

type functions struct {
	version, create, destroy                           uintptr
	descCreate, descDestroy, descSet                   uintptr
	layoutCreate, layoutDestroy                        uintptr
	preferenceCreate, preferenceDestroy, preferenceSet uintptr
	heuristic, matmul                                  uintptr
}

func (f *functions) table() map[string]*uintptr {
	return map[string]*uintptr{
		"cublasLtGetVersion": &f.version, "cublasLtCreate": &f.create, "cublasLtDestroy": &f.destroy,
		"cublasLtMatmulDescCreate": &f.descCreate, "cublasLtMatmulDescDestroy": &f.descDestroy, "cublasLtMatmulDescSetAttribute": &f.descSet,
		"cublasLtMatrixLayoutCreate": &f.layoutCreate, "cublasLtMatrixLayoutDestroy": &f.layoutDestroy,
		"cublasLtMatmulPreferenceCreate": &f.preferenceCreate, "cublasLtMatmulPreferenceDestroy": &f.preferenceDestroy,
		"cublasLtMatmulPreferenceSetAttribute": &f.preferenceSet,
		"cublasLtMatmulAlgoGetHeuristic":       &f.heuristic, "cublasLtMatmul": &f.matmul,
	}
}

// Open loads the library at a path, or, without one, where the system has it. It needs
// neither a device nor a driver.
func Open(path string) (*Library, error) {
	names := libraryNames
	if path != "" {
		names = []string{path}
	}
	lib, err := dynlib.Open(names...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoLibrary, err)
	}
	l := &Library{name: lib.Name()}
	if err := lib.Bind(l.fn.table()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	l.version = int(dynlib.Call(l.fn.version))
	return l, nil
}

// Name returns the file name under which the library was found.
func (l *Library) Name() string { return l.name }

// Version is the release as the library writes it, such as 120402 or 130100.
func (l *Library) Version() int { return l.version }

// Status is a cublasStatus_t that is not success.
type Status int32

var words = map[Status]string{
	1: "it is not initialized: there is no driver, or no context", 3: "no memory", 7: "a value is invalid", 8: "not for this device",
	11: "an address could not be mapped", 13: "a kernel failed", 14: "an internal error", 15: "not supported",
}

// Error implements error.
func (s Status) Error() string {
	if w := words[s]; w != "" {
		return w
	}
	return fmt.Sprintf("cuBLAS status %d", int32(s))
}

// check makes an error of what a function returned.
func check(call string, r uintptr) error {
	if s := Status(int32(r)); s != 0 {
		return fmt.Errorf("%s: %w", call, s)
	}
	return nil
}

// Handle is the library's state on a device. It is not for several goroutines at a time.
type Handle struct {
	lib       *Library
	handle    uintptr
	workspace uint64
	bytes     int64
	plans     map[key]*plan
}

// WorkspaceBytes is the usual workspace of a handle. Products of some shapes are slower
// with less.
const WorkspaceBytes = 32 << 20

// NewHandle makes a handle for the device whose context is current. The workspace is
// memory of that device, at a multiple of 256, which products of the handle use one after
// the other: they must be in one stream.
func (l *Library) NewHandle(workspace uint64, bytes int64) (*Handle, error) {
	h := &Handle{lib: l, workspace: workspace, bytes: bytes, plans: map[key]*plan{}}
	if err := check("cublasLtCreate", dynlib.Call(l.fn.create, uintptr(unsafe.Pointer(&h.handle)))); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	return h, nil
}

// Close gives everything back. No product may be running.
func (h *Handle) Close() error {
	var errs []error
	for _, p := range h.plans {
		errs = append(errs, p.close(h.lib))
	}
	h.plans = nil
	return errors.Join(append(errs, check("cublasLtDestroy", dynlib.Call(h.lib.fn.destroy, h.handle)))...)
}
