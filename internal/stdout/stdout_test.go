package stdout_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dynctl/dynctl/internal/stdout"
)

// failing fails with each of its errors in turn; nil writes.
type failing struct{ errs []error }

func (f *failing) Write(p []byte) (int, error) {
	err := f.errs[0]
	f.errs = f.errs[1:]
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

func TestOutputRemembersItsFirstFailure(t *testing.T) {
	full := &os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.ENOSPC}
	w, out := stdout.Watch(&failing{[]error{nil, full, errors.New("later"), nil}})
	if n, err := fmt.Fprint(w, "fine"); n != 4 || err != nil || out.Err() != nil {
		t.Errorf("a write that went well: %d, %v, %v", n, err, out.Err())
	}
	if _, err := fmt.Fprint(w, "x"); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v", err)
	}
	_, _ = fmt.Fprint(w, "x")
	_, _ = fmt.Fprint(w, "x")
	if err := out.Err(); err == nil || err.Error() != "cannot write the output: no space left on device" {
		t.Errorf("got %v", err)
	}
}

func TestNobodyReadsIsNoFailure(t *testing.T) {
	w, out := stdout.Watch(&failing{[]error{&os.PathError{Op: "write", Path: "|1", Err: syscall.EPIPE}}})
	_, err := fmt.Fprint(w, "x")
	if !stdout.Unread(fmt.Errorf("write JSON: %w", err)) || out.Err() != nil {
		t.Errorf("write: %v, remembered: %v", err, out.Err())
	}
	if stdout.Unread(syscall.EPIPE) {
		t.Error("a broken connection is taken for the output")
	}
}

// Libraries ask the output for its descriptor to find out about terminals.
func TestFilesKeepTheirDescriptor(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w, _ := stdout.Watch(f)
	if d, ok := w.(interface{ Fd() uintptr }); !ok || d.Fd() != f.Fd() {
		t.Errorf("%T has no descriptor", w)
	}
	w, _ = stdout.Watch(&strings.Builder{})
	if _, ok := w.(interface{ Fd() uintptr }); ok {
		t.Error("a buffer has a descriptor")
	}
}
