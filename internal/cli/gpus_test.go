package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

func labGPU(index int) cluster.GPU {
	return cluster.GPU{
		Index: index, Name: "NVIDIA H200", MemoryBytes: new(int64(141 << 30)), MemoryUsed: new(int64(21 << 30)), Utilization: new(0.5 + 0.25*float64(index)),
		PowerWatts: new(412.5), Temperature: new(61), SMClockMHz: new(1305), Throttled: []string{"power cap"}, Processes: []cluster.GPUProcess{{PID: 4711}, {PID: 12}},
	}
}

func TestGPUsInTables(t *testing.T) {
	broken := cluster.GPU{Index: 2, Failed: "the GPU has fallen off the bus"}
	for name, c := range map[string]struct {
		report *cluster.GPUReport
		want   []string
	}{
		"a node that does not tell": {nil, []string{"-", "-", "-", "-"}},
		"none":                      {&cluster.GPUReport{Missing: "NVIDIA's driver is not installed"}, []string{"none", "-", "-", "-"}},
		"two":                       {&cluster.GPUReport{GPUs: []cluster.GPU{labGPU(0), labGPU(1)}}, []string{"0:H200,1:H200", "62%", "42.0 GiB of 282.0 GiB", "825 W"}},
		"one that is broken":        {&cluster.GPUReport{GPUs: []cluster.GPU{labGPU(0), broken}}, []string{"0:H200,2:unknown", "-", "-", "-"}},
	} {
		if got := gpuCells(c.report); !slices.Equal(got, c.want) || len(got) != len(gpuTitles) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestGPUsOfANodeAreExplained(t *testing.T) {
	facts := func(r *cluster.GPUReport) string {
		n := cluster.Node{ID: "n1", Name: "node-1", GPU: r}
		x, ok := explainNode(client.View{Nodes: []cluster.Node{n}}, []cluster.Node{n}, "node-1", "")
		if !ok {
			t.Fatal("no such node")
		}
		var out []string
		for _, f := range x.facts {
			if strings.HasPrefix(f.name, "gpu") {
				out = append(out, f.name+": "+f.text)
			}
		}
		return strings.Join(out, "\n")
	}
	if got := facts(nil); got != "" {
		t.Errorf("of a node that does not tell: %s", got)
	}
	if got := facts(&cluster.GPUReport{Missing: "NVIDIA's driver is not installed"}); got != "gpus: none: NVIDIA's driver is not installed" {
		t.Errorf("of a node without: %s", got)
	}
	bare := cluster.GPU{Index: 1, Name: "NVIDIA H200", MemoryBytes: new(int64(141 << 30)), Processes: []cluster.GPUProcess{}, Failed: "the GPU must be reset"}
	want := `gpu 0: NVIDIA H200, 21.0 GiB of 141.0 GiB used, kernels ran in 50% of the time, 412 W, 61 °C, 1,305 MHz, slowed down: power cap, used by process 4711, 12
gpu 1: NVIDIA H200, 141.0 GiB, no process, the GPU must be reset`
	if got := facts(&cluster.GPUReport{GPUs: []cluster.GPU{labGPU(0), bare}}); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
