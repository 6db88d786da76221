package nvrtc_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/dynctl/dynctl/internal/dynlib"
	"github.com/dynctl/dynctl/internal/dynlib/dynlibtest"
	"github.com/dynctl/dynctl/internal/lab/cuda/nvrtc"
	"github.com/dynctl/dynctl/internal/lab/cuda/nvrtc/nvrtctest"
)

// pretended compiles testdata/libnvrtc.c.
func pretended(t *testing.T, options ...string) string {
	t.Helper()
	return dynlibtest.Compile(t, "testdata/libnvrtc.c", options...)
}

// What reaches the library, and what comes back, over one in C with its prototypes.
func TestBinding(t *testing.T) {
	c, err := nvrtc.Open(pretended(t))
	if err != nil {
		t.Fatal(err)
	}
	if c.Version() != 12040 || !slices.Equal(c.Architectures(), []int{75, 80, 89, 90}) {
		t.Errorf("it is %s, for %v", c.Version(), c.Architectures())
	}
	ptx, warnings, err := c.Compile(nvrtc.Program{
		Name: "sum.cu", Text: "a doubtful source", Headers: map[string]string{"one.h": "first", "two.h": "second"},
		Options: []string{"--gpu-architecture=compute_90a", "-DN=3"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"// one.h: first\n", "// two.h: second\n", "// option --gpu-architecture=compute_90a\n// option -DN=3\n.version 8.4\n.target sm_90a\n"} {
		if !strings.Contains(string(ptx), want) {
			t.Errorf("the PTX lacks %q:\n%s", want, ptx)
		}
	}
	if warnings != "sum.cu(1): warning: it is doubtful" {
		t.Errorf("warnings %q", warnings)
	}
	_, _, err = c.Compile(nvrtc.Program{Name: "sum.cu", Text: "a wrong source"})
	const want = "compile sum.cu: nvrtcCompileProgram: error 6, NVRTC_ERROR_COMPILATION\nsum.cu(1): error: it is wrong"
	if err == nil || err.Error() != want {
		t.Errorf("Compile() = %v, want %s", err, want)
	}
}

// Each way of having no compiler has an error of its own.
func TestStates(t *testing.T) {
	if _, err := nvrtc.Open("/nowhere/libnvrtc.so.12"); !errors.Is(err, nvrtc.ErrNoLibrary) || dynlib.Enabled && !strings.Contains(err.Error(), "/nowhere/libnvrtc.so.12") {
		t.Errorf("without a library: %v", err)
	}
	for option, want := range map[string]string{
		"-DWITHOUT_PROGRAMS": "lacks functions",
		"-DRESULT=11":        "nvrtcVersion: error 11, NVRTC_ERROR_INTERNAL_ERROR",
		"-DRESULT=99":        "nvrtcVersion: error 99, which it has no words for",
	} {
		if _, err := nvrtc.Open(pretended(t, option)); !errors.Is(err, nvrtc.ErrUnusable) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", option, err, want)
		}
	}
	c, err := nvrtc.Open(pretended(t, "-DWITHOUT_ARCHITECTURES"))
	if err != nil || c.Architectures() != nil {
		t.Errorf("a library that does not tell its architectures: %v", err)
	}
}

const scale = `#include "by.h"
extern "C" __global__ void scale(float *v) { v[threadIdx.x] *= BY; }`

// NVIDIA's own compiler, from several goroutines.
func TestNVRTC(t *testing.T) {
	c := nvrtctest.Open(t)
	if a := c.Architectures(); len(a) == 0 || !slices.Contains(a, 80) {
		t.Errorf("architectures %v", a)
	}
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			ptx, warnings, err := c.Compile(nvrtc.Program{
				Name: "scale.cu", Text: scale, Headers: map[string]string{"by.h": "#define BY FACTOR\n"},
				Options: []string{"--gpu-architecture=compute_80", "-DFACTOR=0.25f"},
			})
			if err != nil || warnings != "" {
				t.Errorf("Compile() = %q, %v", warnings, err)
				return
			}
			for _, want := range []string{".target sm_80", ".visible .entry scale(", "0f3E800000"} { // 0.25
				if !strings.Contains(string(ptx), want) {
					t.Errorf("the PTX lacks %q:\n%s", want, ptx)
				}
			}
		})
	}
	all.Wait()
	_, _, err := c.Compile(nvrtc.Program{Name: "scale.cu", Text: scale})
	if err == nil || !strings.Contains(err.Error(), `scale.cu(1)`) || !strings.Contains(err.Error(), "by.h") {
		t.Errorf("Compile() without the header = %v", err)
	}
}
