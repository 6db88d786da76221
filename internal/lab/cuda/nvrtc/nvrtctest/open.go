// Package nvrtctest finds NVIDIA's compiler of kernels for tests.
package nvrtctest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/dynctl/dynctl/internal/lab/cuda/nvrtc"
)

// Open returns NVIDIA's compiler of this machine, or the one that the command which makes
// the PTX has brought. The test is skipped where there is none.
func Open(t testing.TB) *nvrtc.Compiler {
	t.Helper()
	c, err := nvrtc.Open(Path())
	if err != nil {
		t.Skip(err)
	}
	return c
}

// Path returns the path of the NVRTC that the PTX command downloaded; empty if it has not.
func Path() string {
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	found, err := filepath.Glob(filepath.Join(cache, "dynctl-ci/cuda-11.8/usr/lib/*/libnvrtc.so.11.2"))
	if err != nil || len(found) == 0 {
		return ""
	}
	return found[0]
}
