package nvrtc

import (
	"errors"
	"fmt"
	"path/filepath"
	"unsafe"

	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/dynlib"
)

// Why there is no compiler; each error of Open is one of them.
var (
	// ErrNoLibrary: libnvrtc is not there, or this program cannot load libraries.
	ErrNoLibrary = errors.New("no NVRTC")
	// ErrUnusable: the library is there and does not work; the text says why.
	ErrUnusable = errors.New("NVRTC cannot be used")
)

// libraryNames lists the library's file names, the newest first. The last is the path of a
// toolkit that the dynamic linker does not know of.
var libraryNames = []string{
	"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so",
	"/usr/local/cuda/lib64/libnvrtc.so",
}

// Compiler is the loaded library.
type Compiler struct {
	version       driver.Version
	architectures []int
	fn            functions
}

type functions struct {
	version, create, compile, destroy uintptr
	ptxSize, ptx, logSize, log        uintptr
	errorString                       uintptr
	archCount, archs                  uintptr // optional: since 11.2
}

func (f *functions) required() map[string]*uintptr {
	return map[string]*uintptr{
		"nvrtcVersion": &f.version, "nvrtcGetErrorString": &f.errorString,
		"nvrtcCreateProgram": &f.create, "nvrtcCompileProgram": &f.compile, "nvrtcDestroyProgram": &f.destroy,
		"nvrtcGetPTXSize": &f.ptxSize, "nvrtcGetPTX": &f.ptx, "nvrtcGetProgramLogSize": &f.logSize, "nvrtcGetProgramLog": &f.log,
	}
}

// Open loads the library at a path, or, without one, where the system has it.
func Open(path string) (*Compiler, error) {
	names := libraryNames
	if path != "" {
		names = []string{path}
		// NVRTC loads its builtins by their name, and gets those that are loaded: beside a
		// library in a folder of its own nobody else would find them.
		if beside, err := filepath.Glob(filepath.Join(filepath.Dir(path), "libnvrtc-builtins.so.*")); err == nil && len(beside) > 0 {
			_, _ = dynlib.Open(beside...) // without them compilation says so
		}
	}
	lib, err := dynlib.Open(names...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoLibrary, err)
	}
	c := &Compiler{}
	if err := lib.Bind(c.fn.required()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	var major, minor int32
	if err := c.call("nvrtcVersion", dynlib.Call(c.fn.version, uintptr(unsafe.Pointer(&major)), uintptr(unsafe.Pointer(&minor)))); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	c.version = driver.Version(1000*major + 10*minor)
	if lib.Bind(map[string]*uintptr{"nvrtcGetNumSupportedArchs": &c.fn.archCount, "nvrtcGetSupportedArchs": &c.fn.archs}) == nil {
		if err := c.findArchitectures(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnusable, err)
		}
	}
	return c, nil
}

func (c *Compiler) findArchitectures() error {
	var n int32
	if err := c.call("nvrtcGetNumSupportedArchs", dynlib.Call(c.fn.archCount, uintptr(unsafe.Pointer(&n)))); err != nil || n < 1 {
		return err
	}
	list := make([]int32, n)
	if err := c.call("nvrtcGetSupportedArchs", dynlib.Call(c.fn.archs, uintptr(unsafe.Pointer(&list[0])))); err != nil {
		return err
	}
	for _, a := range list {
		c.architectures = append(c.architectures, int(a))
	}
	return nil
}

// Version is the CUDA version that the compiler belongs to. Drivers of that version and
// later take its PTX.
func (c *Compiler) Version() driver.Version { return c.version }

// Architectures are the compute capabilities that the compiler knows, ascending, 90 for
// 9.0; nil of one that does not tell.
func (c *Compiler) Architectures() []int { return c.architectures }

// call makes an error of what a function returned.
func (c *Compiler) call(name string, r uintptr) error {
	code := int32(r)
	if code == 0 {
		return nil
	}
	return fmt.Errorf("%s: error %d, %s", name, code, text(dynlib.Call(c.fn.errorString, uintptr(code))))
}

// text is a constant text of the library.
func text(address uintptr) string {
	if address == 0 {
		return "which it has no words for"
	}
	p := *(*unsafe.Pointer)(unsafe.Pointer(&address))
	n := 0
	for *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}
