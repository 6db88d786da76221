// Package dynlibtest makes C libraries for tests of bindings.
package dynlibtest

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/dynctl/dynctl/internal/dynlib"
)

// Compile makes a shared library of a C file, with options of the compiler such as
// -DNAME=1, and returns its path. The test is skipped where libraries cannot be loaded,
// and without a compiler.
func Compile(t testing.TB, source string, options ...string) string {
	t.Helper()
	if !dynlib.Enabled {
		t.Skip(dynlib.ErrCompiledOut)
	}
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("needs a C compiler: ", err)
	}
	path := filepath.Join(t.TempDir(), "lib.so")
	args := append([]string{"-O1", "-shared", "-fPIC", "-pthread", "-fvisibility=hidden", "-o", path, source}, options...)
	if out, err := exec.CommandContext(t.Context(), cc, args...).CombinedOutput(); err != nil {
		t.Fatalf("compile %s: %v\n%s", source, err, out)
	}
	return path
}
