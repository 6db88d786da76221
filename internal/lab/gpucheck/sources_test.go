package gpucheck

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/lab/cuda/nvrtc/nvrtctest"
)

// Edited sources take the place of the program's kernels, and results say so.
func TestSources(t *testing.T) {
	t.Parallel()
	nvrtctest.Open(t) // or skip
	dir := t.TempDir()
	for _, name := range []string{"copy.cu", "device.h"} {
		text, err := os.ReadFile(filepath.Join("../../cuda/kernels/src", name))
		if err != nil {
			t.Fatal(err)
		}
		edited := strings.Replace(string(text), "64 << 10", "PART_BYTES", 1)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(edited), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	o := options(t, "none")
	o.Sources, o.NVRTC, o.Macros = dir, nvrtctest.Path(), []string{"PART_BYTES=65536"}
	o.Cases = []string{"smoke/load/copy", "smoke/load/norm", "smoke/launch/copy_pieces"}
	got, err := outcomes(t, o)
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range got {
		if r.End != Passed || !strings.HasPrefix(r.Sources, "NVRTC ") || !strings.HasSuffix(r.Sources, " -DPART_BYTES=65536") || len(r.PTX) != 1 {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if compiled := got["smoke/load/copy"]; len(compiled.Notes) == 0 || !strings.Contains(compiled.Notes[0], "PART_BYTES") || !slices.Equal(compiled.PTX, got["smoke/launch/copy_pieces"].PTX) {
		t.Errorf("%+v", compiled)
	}
	if kept := got["smoke/load/norm"]; len(kept.Notes) == 0 || strings.Contains(kept.Notes[0], "NVRTC") {
		t.Errorf("a unit without a source: %+v", kept)
	}
	o.Out, o.Macros = t.TempDir(), nil
	if _, err := outcomes(t, o); err == nil || !strings.Contains(err.Error(), `identifier "PART_BYTES" is undefined`) {
		t.Errorf("a source that does not compile: %v", err)
	}
}
