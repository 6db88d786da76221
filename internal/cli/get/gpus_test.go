package get

import (
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cluster"
)

func TestGPUsInTables(t *testing.T) {
	broken := cluster.GPU{Index: 2, Failed: "the GPU has fallen off the bus"}
	for name, c := range map[string]struct {
		report *cluster.GPUReport
		want   []string
	}{
		"a node that does not tell": {nil, []string{"-", "-", "-", "-"}},
		"none":                      {&cluster.GPUReport{Missing: "NVIDIA's driver is not installed"}, []string{"none", "-", "-", "-"}},
		"two":                       {&cluster.GPUReport{GPUs: []cluster.GPU{clitest.GPU(0), clitest.GPU(1)}}, []string{"0:H200,1:H200", "62%", "42.0 GiB of 282.0 GiB", "825 W"}},
		"one that is broken":        {&cluster.GPUReport{GPUs: []cluster.GPU{clitest.GPU(0), broken}}, []string{"0:H200,2:unknown", "-", "-", "-"}},
	} {
		if got := gpuCells(c.report); !slices.Equal(got, c.want) || len(got) != len(gpuTitles) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
