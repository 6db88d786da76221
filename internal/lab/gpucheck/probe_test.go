package gpucheck

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/lab/cuda/nvrtc"
	"github.com/dynctl/dynctl/internal/lab/cuda/nvrtc/nvrtctest"
)

var update = flag.Bool("update", false, "write the PTX of the probe")

// The PTX of the probe is what NVRTC 11.8 makes of its source.
func TestProbeIsCompiled(t *testing.T) {
	c := nvrtctest.Open(t)
	if c.Version() != 11080 {
		t.Skipf("NVRTC %s makes other PTX than 11.8", c.Version())
	}
	text, err := os.ReadFile("probe/read.cu")
	if err != nil {
		t.Fatal(err)
	}
	ptx, warnings, err := c.Compile(nvrtc.Program{Name: "read.cu", Text: string(text), Options: kernels.CompilerOptions("80")})
	if err != nil || warnings != "" {
		t.Fatal(warnings, err)
	}
	var kept strings.Builder
	for line := range strings.Lines(string(ptx)) {
		if code := strings.TrimSpace(line); code != "" && !strings.HasPrefix(code, "//") {
			kept.WriteString(strings.TrimRight(line, " \t\n") + "\n")
		}
	}
	if *update {
		if err := os.WriteFile("probe/read.ptx", []byte(kept.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile("probe/read.ptx"); err != nil || string(want) != kept.String() {
		t.Errorf("probe/read.ptx is not what its source compiles to (%v): run the test with -update", err)
	}
}
