package module_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/cuda/module"
	"github.com/dynctl/dynctl/internal/lab/cuda/kerneltest"
	"github.com/dynctl/dynctl/internal/lab/cuda/nvrtc"
	"github.com/dynctl/dynctl/internal/lab/cuda/nvrtc/nvrtctest"
)

// The sources of this program, compiled by NVIDIA's compiler for the device and loaded:
// the same kernels as those that are part of it. A macro reaches them.
func TestSourcesOfThisProgram(t *testing.T) {
	c := nvrtctest.Open(t)
	twins, err := kerneltest.Kernels()
	if err != nil {
		t.Fatal(err)
	}
	d, _ := open(t, 9, 0, twins...)
	src := filepath.Join("..", "kernels", "src")
	images, err := nvrtc.Sources{Dir: src, Compiler: c}.Images(t.Context(), d.Properties(), module.Builtin())
	if err != nil {
		t.Fatal(err)
	}
	want := "sm_90"
	if c.Version() >= 12000 {
		want = "sm_90a"
	}
	for _, i := range images {
		want := want
		if kernels.Exact(i.Name) {
			want = "sm_90a"
		}
		if target, err := i.Target(); err != nil || target.String() != want || i.Warnings != "" || i.Origin == "" {
			t.Errorf("%s is for %s, %v, by %q, with warnings %q", i.Name, target, err, i.Origin, i.Warnings)
		}
	}
	s, err := module.Load(t.Context(), d, images, module.Options{})
	if err != nil {
		t.Fatal(err)
	}
	functions := s.Functions()
	for _, m := range kernels.Modules() {
		for _, k := range m.Kernels {
			if functions[k] == 0 {
				t.Errorf("kernel %s is not among those of the sources", k)
			}
		}
	}
	multiply(t, d, functions)
	if err := s.Close(); err != nil {
		t.Error(err)
	}

	copies, err := os.ReadFile(filepath.Join(src, "copy.cu"))
	if err != nil {
		t.Fatal(err)
	}
	header, err := os.ReadFile(filepath.Join(src, "device.h"))
	if err != nil {
		t.Fatal(err)
	}
	edited := bytes.Replace(copies, []byte("64 << 10"), []byte("PART_BYTES"), 1)
	dir := t.TempDir()
	for name, text := range map[string][]byte{"copy.cu": edited, "device.h": header} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	hashes := map[string]bool{}
	for _, macro := range []string{"PART_BYTES=1024", "PART_BYTES=2048"} {
		images, err := nvrtc.Sources{Dir: dir, Macros: []string{macro}, Compiler: c}.Images(t.Context(), d.Properties(), nil)
		if err != nil {
			t.Fatal(err)
		}
		hashes[images[0].Hash()] = true
	}
	if len(hashes) != 2 {
		t.Error("the value of a macro changes nothing")
	}
	if _, err := (nvrtc.Sources{Dir: dir, Compiler: c}).Images(t.Context(), d.Properties(), nil); err == nil || !strings.Contains(err.Error(), `copy.cu(4): error: identifier "PART_BYTES" is undefined`) {
		t.Errorf("without the macro: %v", err)
	}
}
