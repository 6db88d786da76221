package explain

import (
	"fmt"
	"strings"

	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cluster"
)

// gpuText says in a line what a GPU is and does.
func gpuText(g cluster.GPU) string {
	parts := []string{g.Name}
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	switch {
	case g.MemoryUsed != nil && g.MemoryBytes != nil:
		add("%s of %s used", human.Bytes(*g.MemoryUsed), human.Bytes(*g.MemoryBytes))
	case g.MemoryBytes != nil:
		add("%s", human.Bytes(*g.MemoryBytes))
	}
	if g.Utilization != nil {
		add("kernels ran in %.0f%% of the time", 100**g.Utilization)
	}
	if g.PowerWatts != nil {
		add("%.0f W", *g.PowerWatts)
	}
	if g.Temperature != nil {
		add("%d °C", *g.Temperature)
	}
	if g.SMClockMHz != nil {
		add("%s MHz", human.Commas(*g.SMClockMHz))
	}
	if len(g.Throttled) > 0 {
		add("slowed down: %s", strings.Join(g.Throttled, ", "))
	}
	if g.Processes != nil {
		add("%s", processText(g.Processes))
	}
	if g.Failed != "" {
		add("%s", g.Failed)
	}
	return strings.Join(parts, ", ")
}

func processText(ps []cluster.GPUProcess) string {
	if len(ps) == 0 {
		return "no process"
	}
	var out []string
	for _, p := range ps {
		out = append(out, fmt.Sprint(p.PID))
	}
	return "used by process " + strings.Join(out, ", ")
}
