package tui

import (
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
)

// gpuSection lists the GPUs of a node with what their driver tells of them, or says why
// there are none.
func gpuSection(n *cluster.Node) section {
	switch {
	case n.GPU == nil:
		return section{"gpus", [][]span{{{"the node does not tell", dim}}}}
	case len(n.GPU.GPUs) == 0:
		return section{"gpus", [][]span{{{"none: " + n.GPU.Missing, dim}}}}
	}
	rows := [][]span{titleRow("GPU NAME MEMORY USE MEM POWER TEMP CLOCK PROCESSES")}
	var notes [][]span
	for i := range n.GPU.GPUs {
		g := &n.GPU.GPUs[i]
		index := strconv.Itoa(g.Index)
		rows = append(rows, []span{
			{index, strong}, {orUnknown(g.Name), plain}, {memoryOf(g), plain}, {percentSign(g.Utilization), plain}, {percentSign(g.MemoryBusy), plain},
			{powerOf(g), plain}, {figure(g.Temperature, " C"), plain}, {figure(g.SMClockMHz, " MHz"), plain}, {processesOf(g), plain},
		})
		if g.Failed != "" {
			notes = append(notes, []span{{"gpu " + index + ": " + g.Failed, bad}})
		}
		if len(g.Throttled) > 0 {
			notes = append(notes, []span{{"gpu " + index + " is slowed down: " + strings.Join(g.Throttled, ", "), warn}})
		}
	}
	lines := append(gridLines(rows, []bool{true, false, true, true, true, true, true, true, false}), notes...)
	about := "driver " + orUnknown(n.GPU.Driver) + ", CUDA " + orUnknown(n.GPU.CUDA) + "; use: share of time in which any kernel ran, mem: in which memory was busy"
	return section{"gpus (" + commas(len(n.GPU.GPUs)) + ")", append(lines, []span{{about, dim}})}
}

// memoryOf is what of a GPU's memory is used: "21 of 141 GiB".
func memoryOf(g *cluster.GPU) string {
	switch {
	case g.MemoryBytes == nil:
		return unknown
	case g.MemoryUsed == nil:
		return size(float64(*g.MemoryBytes))
	}
	return size(float64(*g.MemoryUsed)) + " of " + size(float64(*g.MemoryBytes))
}

func powerOf(g *cluster.GPU) string {
	switch {
	case g.PowerWatts == nil:
		return unknown
	case g.PowerLimit == nil:
		return strconv.Itoa(int(*g.PowerWatts)) + " W"
	}
	return strconv.Itoa(int(*g.PowerWatts)) + "/" + strconv.Itoa(int(*g.PowerLimit)) + " W"
}

func figure(v *int, unit string) string {
	if v == nil {
		return unknown
	}
	return commas(*v) + unit
}

// processesOf names who computes on a GPU, and how much of its memory each has.
func processesOf(g *cluster.GPU) string {
	if g.Processes == nil {
		return unknown
	}
	var out []string
	for _, p := range g.Processes {
		text := strconv.Itoa(p.PID)
		if p.MemoryBytes != nil {
			text += " (" + size(float64(*p.MemoryBytes)) + ")"
		}
		out = append(out, text)
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}
