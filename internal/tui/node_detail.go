package tui

import (
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
)

// nodeSections are the boxes of a node's screen.
func (m *model) nodeSections() []section {
	i, ok := m.known.nodeAt[m.detail.node]
	if !ok {
		return []section{{"node", [][]draw.Span{
			{draw.Bad.Text("no node " + m.detail.node + " any more")},
			{draw.Plain.Text("It left the cluster, or its lease ended. esc goes back to the panes.")},
		}}}
	}
	n := &m.snap.Nodes[i]
	var out []section
	if len(n.Alarms) > 0 {
		var lines [][]draw.Span
		for _, text := range n.Alarms {
			lines = append(lines, []draw.Span{draw.Bad.Text(text)})
		}
		out = append(out, section{"alarms", lines})
	}
	return append(out, m.deviceSection(n, &m.known.nodes[i]), gpuSection(n), m.nodeWorkers(n), m.nodeIdentity(n))
}

// deviceSection lists what workers run on, with what is measured of it.
func (m *model) deviceSection(n *cluster.Node, f *nodeFacts) section {
	rows := [][]draw.Span{draw.Titles("DEVICE NAME CORES COMPUTES MEMORY WORKERS USE")}
	for i := range n.Devices {
		d := &n.Devices[i]
		cores, memory, use := cells.Unknown, cells.Unknown, percentSign(f.useOf(d.ID))
		if d.Cores > 0 {
			cores = cells.Commas(d.Cores)
		}
		if d.MemoryBytes > 0 {
			memory = cells.Bytes(float64(d.MemoryBytes))
		}
		workers := 0
		m.workersOf(n, func(w *cluster.Worker) {
			if w.Device == d.ID {
				workers++
			}
		})
		rows = append(rows, []draw.Span{
			draw.Strong.Text(cells.OrUnknown(d.ID)), draw.Plain.Text(cells.OrUnknown(d.Name)), draw.Plain.Text(cores), draw.Plain.Text(cells.OrUnknown(d.ISA)), draw.Plain.Text(memory),
			draw.Plain.Text(cells.Commas(workers)), draw.Plain.Text(use),
		})
	}
	if len(rows) == 1 {
		return section{"devices", [][]draw.Span{{draw.Dim.Text("none that the node tells of")}}}
	}
	lines := draw.Grid(rows, []bool{false, false, true, false, true, true, true})
	return section{"devices", append(lines, []draw.Span{draw.Dim.Text("use: share of the last second in which the engines computed")})}
}

// workersOf calls f for each worker of a node.
func (m *model) workersOf(n *cluster.Node, f func(w *cluster.Worker)) {
	for i := range m.snap.Workers {
		if w := &m.snap.Workers[i]; w.Node == n.Name || w.Node == n.ID {
			f(w)
		}
	}
}

func (m *model) nodeWorkers(n *cluster.Node) section {
	rows := [][]draw.Span{draw.Titles("WORKER ROLE DEVICE STATE SEQS KV TOK/S USE")}
	m.workersOf(n, func(w *cluster.Worker) {
		glyph, st := stateLook(m.glyphs, w.State)
		rows = append(rows, []draw.Span{
			draw.Strong.Text(w.Name), roleStyle(w.Role).Text(cells.OrUnknown(string(w.Role))), draw.Plain.Text(cells.OrUnknown(w.Device)), st.Text(glyph + " " + stateWord(w)),
			draw.Plain.Text(seqText(w)), draw.Plain.Text(kvNumber(w)), draw.Plain.Text(cells.CompactOr(w.TokS)), draw.Plain.Text(percentSign(w.Busy)),
		})
	})
	if len(rows) == 1 {
		return section{"workers", [][]draw.Span{{draw.Dim.Text("none on this node")}}}
	}
	return section{"workers (" + cells.Commas(len(rows)-1) + ")", draw.Grid(rows, []bool{false, false, false, false, true, true, true, true})}
}

func (m *model) nodeIdentity(n *cluster.Node) section {
	var roles []string
	for _, r := range n.Roles {
		roles = append(roles, string(r))
	}
	leads := "no"
	if m.snap.Leader == n.Name || m.snap.Leader == n.ID {
		leads = "yes"
	}
	lines := [][]draw.Span{
		draw.Fact("id", cells.OrUnknown(n.ID), draw.Plain),
		draw.Fact("host", cells.OrUnknown(n.Host), draw.Plain),
		draw.Fact("process", strconv.Itoa(n.PID), draw.Plain),
		draw.Fact("version", cells.OrUnknown(n.Version), draw.Plain),
		draw.Fact("started", m.moment(n.StartedAt), draw.Plain),
		draw.Fact("instance", cells.OrUnknown(instanceText(n.InstanceID)), draw.Plain),
	}
	if l := m.nodeLease(n); l != nil {
		lines = append(lines, append([]draw.Span{draw.Dim.Text(cells.PadRight("lease", 14) + " ")}, m.ttlSpans(l, 30)...))
	}
	prefers := "every role"
	if len(roles) > 0 {
		prefers = strings.Join(roles, ", ")
	}
	return section{"node", append(lines,
		draw.Fact("leads", leads, draw.Plain),
		draw.Fact("prefers", prefers, draw.Plain),
		draw.Fact("hosts", storeList(n), draw.Plain),
		draw.Fact("request plane", cells.OrUnknown(n.RequestPlane), draw.Plain),
		draw.Fact("frontend", cells.OrUnknown(n.FrontendURL), draw.Plain),
		draw.Fact("status", cells.OrUnknown(n.StatusURL), draw.Plain),
	)}
}
