//go:build linux && (amd64 || arm64) && !nodl

package dynlib

import (
	"errors"
	"fmt"

	"github.com/ebitengine/purego"
)

// Enabled reports whether this program can load libraries.
const Enabled = true

// Open loads the first library of the names that is found, where the system's
// dynamic linker looks for it. All its symbols are resolved; they are not visible to
// libraries that are loaded later.
func Open(names ...string) (*Library, error) {
	var errs []error
	for _, name := range names {
		h, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
		if err == nil {
			return &Library{name: name, handle: h}, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("load library: %w", errors.Join(errs...))
}

// Bind stores the addresses of functions by name. It reports all that are missing.
func (l *Library) Bind(into map[string]*uintptr) error {
	var errs []error
	for name, p := range into {
		addr, err := purego.Dlsym(l.handle, name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		*p = addr
	}
	if len(errs) > 0 {
		return fmt.Errorf("library %s lacks functions: %w", l.name, errors.Join(errs...))
	}
	return nil
}

// Call calls a C function with up to 32 integers or pointers and returns its first
// result register, of which a function with a narrower result fills the low bits only.
// A pointer is passed as uintptr(unsafe.Pointer(p)), written in the list of arguments:
// only then it stays valid for the time of the call. Memory that the function keeps must
// not be on the Go heap, or be pinned.
//
//go:uintptrescapes
func Call(fn uintptr, args ...uintptr) uintptr {
	r, _, _ := purego.SyscallN(fn, args...)
	return r
}

// Callback makes a C function of a Go function whose parameters and result are of type
// uintptr. There is room for about 2000 in a process, and none is ever freed: make one
// for each purpose, once.
func Callback(f any) uintptr { return purego.NewCallback(f) }

// Func makes the Go function that ptr points to call a C function. It is slower than
// [Call], and takes what that cannot: floats, and structures by value.
func Func(ptr any, fn uintptr) { purego.RegisterFunc(ptr, fn) }
