package get

import (
	"fmt"
	"strings"

	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cluster"
)

// gpuCells are the columns of a node's GPUs, titled gpuTitles: what they are, how busy
// they are on average, memory that is used of all, and what all draw. Figures that some
// GPU does not tell are left out.
func gpuCells(r *cluster.GPUReport) []string {
	if r == nil {
		return []string{"-", "-", "-", "-"}
	}
	if len(r.GPUs) == 0 {
		return []string{"none", "-", "-", "-"}
	}
	busy, used, all, watts := 0.0, int64(0), int64(0), 0.0
	knows := [3]bool{true, true, true}
	var names []string
	for _, g := range r.GPUs {
		name := "unknown"
		if words := strings.Fields(g.Name); len(words) > 0 {
			name = words[len(words)-1]
		}
		names = append(names, fmt.Sprintf("%d:%s", g.Index, name))
		if g.Utilization != nil {
			busy += *g.Utilization
		}
		if g.MemoryUsed != nil && g.MemoryBytes != nil {
			used, all = used+*g.MemoryUsed, all+*g.MemoryBytes
		}
		if g.PowerWatts != nil {
			watts += *g.PowerWatts
		}
		knows[0] = knows[0] && g.Utilization != nil
		knows[1] = knows[1] && g.MemoryUsed != nil && g.MemoryBytes != nil
		knows[2] = knows[2] && g.PowerWatts != nil
	}
	cells := []string{strings.Join(names, ","), "-", "-", "-"}
	if knows[0] {
		cells[1] = fmt.Sprintf("%.0f%%", 100*busy/float64(len(r.GPUs)))
	}
	if knows[1] {
		cells[2] = human.Bytes(used) + " of " + human.Bytes(all)
	}
	if knows[2] {
		cells[3] = fmt.Sprintf("%.0f W", watts)
	}
	return cells
}

var gpuTitles = []string{"~GPUS", ">GPU USE", ">GPU MEMORY", ">GPU POWER"}
