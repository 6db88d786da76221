package detail

import (
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
)

// gpuSection lists the GPUs of a node with what their driver tells of them, or says why
// there are none.
func gpuSection(n *cluster.Node) Section {
	switch {
	case n.GPU == nil:
		return Section{"gpus", [][]draw.Span{{draw.Dim.Text("the node does not report them")}}}
	case len(n.GPU.GPUs) == 0:
		return Section{"gpus", [][]draw.Span{{draw.Dim.Text("none: " + n.GPU.Missing)}}}
	}
	rows := [][]draw.Span{draw.Titles("GPU NAME MEMORY USE MEM POWER TEMP CLOCK PROCESSES")}
	var notes [][]draw.Span
	for i := range n.GPU.GPUs {
		g := &n.GPU.GPUs[i]
		index := strconv.Itoa(g.Index)
		rows = append(rows, []draw.Span{
			draw.Strong.Text(index), draw.Plain.Text(cells.OrUnknown(g.Name)), draw.Plain.Text(memoryOf(g)), draw.Plain.Text(percentSign(g.Utilization)), draw.Plain.Text(percentSign(g.MemoryBusy)),
			draw.Plain.Text(powerOf(g)), draw.Plain.Text(figure(g.Temperature, " C")), draw.Plain.Text(figure(g.SMClockMHz, " MHz")), draw.Plain.Text(processesOf(g)),
		})
		if g.Failed != "" {
			notes = append(notes, []draw.Span{draw.Bad.Text("gpu " + index + ": " + g.Failed)})
		}
		if len(g.Throttled) > 0 {
			notes = append(notes, []draw.Span{draw.Warn.Text("gpu " + index + " is slowed down: " + strings.Join(g.Throttled, ", "))})
		}
	}
	lines := append(draw.Grid(rows, []bool{true, false, true, true, true, true, true, true, false}), notes...)
	about := "driver " + cells.OrUnknown(n.GPU.Driver) + ", CUDA " + cells.OrUnknown(n.GPU.CUDA) + "; use: share of time in which any kernel ran, mem: in which memory was busy"
	return Section{"gpus (" + cells.Commas(len(n.GPU.GPUs)) + ")", append(lines, []draw.Span{draw.Dim.Text(about)})}
}

// memoryOf returns the used memory of a GPU: "21 of 141 GiB".
func memoryOf(g *cluster.GPU) string {
	switch {
	case g.MemoryBytes == nil:
		return cells.Unknown
	case g.MemoryUsed == nil:
		return cells.Bytes(float64(*g.MemoryBytes))
	}
	return cells.Bytes(float64(*g.MemoryUsed)) + " of " + cells.Bytes(float64(*g.MemoryBytes))
}

func powerOf(g *cluster.GPU) string {
	switch {
	case g.PowerWatts == nil:
		return cells.Unknown
	case g.PowerLimit == nil:
		return strconv.Itoa(int(*g.PowerWatts)) + " W"
	}
	return strconv.Itoa(int(*g.PowerWatts)) + "/" + strconv.Itoa(int(*g.PowerLimit)) + " W"
}

func figure(v *int, unit string) string {
	if v == nil {
		return cells.Unknown
	}
	return cells.Commas(*v) + unit
}

// processesOf names who computes on a GPU, and how much of its memory each has.
func processesOf(g *cluster.GPU) string {
	if g.Processes == nil {
		return cells.Unknown
	}
	var out []string
	for _, p := range g.Processes {
		text := strconv.Itoa(p.PID)
		if p.MemoryBytes != nil {
			text += " (" + cells.Bytes(float64(*p.MemoryBytes)) + ")"
		}
		out = append(out, text)
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}
