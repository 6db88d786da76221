package simulation

import (
	"fmt"
	"io"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/topofile"
)

// ShowFront prints a front and marks the topology that was chosen.
func ShowFront(out io.Writer, front []Found, chosen Found) error {
	var b strings.Builder
	b.WriteString("| devices | topology | missed | TTFT p95 | ITL p95 | good requests per s | good per device-hour | |\n|---:|---|---:|---:|---:|---:|---:|---|\n")
	for _, f := range front {
		mark := ""
		if f.Topology == chosen.Topology {
			mark = "chosen"
		}
		r := f.Result
		fmt.Fprintf(&b, "| %d | %s | %.1f %% | %s ms | %s ms | %s | %s | %s |\n", f.Devices, f.Topology, 100*f.Missed, round(r.TTFT.P95), round(r.TPOT.P95), round(r.Goodput.RequestsPerS), round(r.Goodput.PerDeviceHour), mark)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// File returns a topology file that declares what was found in place of the numbers of workers of another one.
func (f Found) File(base topofile.File) ([]byte, error) {
	file := base.Clone()
	file.Topology.Prefill, file.Topology.Decode = f.Topology.Prefill, f.Topology.Decode
	if n := f.Topology.PrefillTP; n > 0 && f.Topology.Prefill > 0 {
		file.Topology.PrefillSpec.Engine.TensorParallel = n
	}
	if n := f.Topology.DecodeTP; n > 0 {
		file.Topology.DecodeSpec.Engine.TensorParallel = n
	}
	if n := f.Topology.MaxLocal; n > 0 {
		for _, set := range []string{"disagg.conditional=" + cluster.ConditionalThreshold, fmt.Sprintf("disagg.max_local_prefill_tokens=%d", n)} {
			if err := file.Set(set, topofile.Source{}); err != nil {
				return nil, err
			}
		}
	}
	return file.YAML()
}
