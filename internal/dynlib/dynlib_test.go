package dynlib_test

import (
	"errors"
	"strings"
	"testing"
	"unsafe"

	"github.com/dynctl/dynctl/internal/dynlib"
)

func TestOpen(t *testing.T) {
	lib, err := dynlib.Open("libnosuchthing.so.7", "libc.so.6")
	if !dynlib.Enabled {
		if !errors.Is(err, dynlib.ErrCompiledOut) {
			t.Fatalf("Open() = %v", err)
		}
		return
	}
	if err != nil {
		t.Skip(err) // another C library than glibc
	}
	if lib.Name() != "libc.so.6" {
		t.Errorf("Name() = %q", lib.Name())
	}
	var strlen, qsort, atof uintptr
	if err := lib.Bind(map[string]*uintptr{"strlen": &strlen, "qsort": &qsort, "atof": &atof}); err != nil {
		t.Fatal(err)
	}
	text := []byte("twelve bytes\x00")
	if n := dynlib.Call(strlen, uintptr(unsafe.Pointer(&text[0]))); n != 12 {
		t.Errorf("strlen() = %d", n)
	}
	var number func(text string) float64
	dynlib.Func(&number, atof)
	if got := number("-12.5e3"); got != -12500 {
		t.Errorf("atof() = %g", got)
	}
	calls := 0
	compare := dynlib.Callback(func(a, b uintptr) uintptr {
		calls++
		return uintptr(int(*(*byte)(at(a))) - int(*(*byte)(at(b))))
	})
	letters := []byte("sorted")
	dynlib.Call(qsort, uintptr(unsafe.Pointer(&letters[0])), uintptr(len(letters)), 1, compare)
	if string(letters) != "deorst" || calls == 0 {
		t.Errorf("qsort() made %q with %d calls", letters, calls)
	}

	var missing uintptr
	err = lib.Bind(map[string]*uintptr{"no_such_function": &missing})
	if err == nil || !strings.Contains(err.Error(), "libc.so.6") || !strings.Contains(err.Error(), "no_such_function") {
		t.Errorf("Bind() = %v", err)
	}
	if _, err := dynlib.Open("libnosuchthing.so.7"); err == nil || !strings.Contains(err.Error(), "libnosuchthing.so.7") {
		t.Errorf("Open() = %v", err)
	}
}

// at is the memory a C function points to.
func at(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }
