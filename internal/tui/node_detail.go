package tui

import (
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
)

// nodeSections are the boxes of a node's screen.
func (m *model) nodeSections() []section {
	i, ok := m.known.nodeAt[m.detail.node]
	if !ok {
		return []section{{"node", [][]span{
			{{"no node " + m.detail.node + " any more", bad}},
			{{"It left the cluster, or its lease ended. esc goes back to the panes.", plain}},
		}}}
	}
	n := &m.snap.Nodes[i]
	var out []section
	if len(n.Alarms) > 0 {
		var lines [][]span
		for _, text := range n.Alarms {
			lines = append(lines, []span{{text, bad}})
		}
		out = append(out, section{"alarms", lines})
	}
	return append(out, m.deviceSection(n, &m.known.nodes[i]), gpuSection(n), m.nodeWorkers(n), m.nodeIdentity(n))
}

// deviceSection lists what workers run on, with what is measured of it.
func (m *model) deviceSection(n *cluster.Node, f *nodeFacts) section {
	rows := [][]span{titleRow("DEVICE NAME CORES COMPUTES MEMORY WORKERS USE")}
	for i := range n.Devices {
		d := &n.Devices[i]
		cores, memory, use := unknown, unknown, percentSign(f.useOf(d.ID))
		if d.Cores > 0 {
			cores = commas(d.Cores)
		}
		if d.MemoryBytes > 0 {
			memory = size(float64(d.MemoryBytes))
		}
		workers := 0
		m.workersOf(n, func(w *cluster.Worker) {
			if w.Device == d.ID {
				workers++
			}
		})
		rows = append(rows, []span{
			{orUnknown(d.ID), strong}, {orUnknown(d.Name), plain}, {cores, plain}, {orUnknown(d.ISA), plain}, {memory, plain},
			{commas(workers), plain}, {use, plain},
		})
	}
	if len(rows) == 1 {
		return section{"devices", [][]span{{{"none that the node tells of", dim}}}}
	}
	lines := gridLines(rows, []bool{false, false, true, false, true, true, true})
	return section{"devices", append(lines, []span{{"use: share of the last second in which the engines computed", dim}})}
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
	rows := [][]span{titleRow("WORKER ROLE DEVICE STATE SEQS KV TOK/S USE")}
	m.workersOf(n, func(w *cluster.Worker) {
		glyph, st := stateLook(m.glyphs, w.State)
		rows = append(rows, []span{
			{w.Name, strong}, {orUnknown(string(w.Role)), roleStyle(w.Role)}, {orUnknown(w.Device), plain}, {glyph + " " + stateWord(w), st},
			{seqText(w), plain}, {kvNumber(w), plain}, {compactOr(w.TokS), plain}, {percentSign(w.Busy), plain},
		})
	})
	if len(rows) == 1 {
		return section{"workers", [][]span{{{"none on this node", dim}}}}
	}
	return section{"workers (" + commas(len(rows)-1) + ")", gridLines(rows, []bool{false, false, false, false, true, true, true, true})}
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
	lines := [][]span{
		fact("id", orUnknown(n.ID), plain),
		fact("host", orUnknown(n.Host), plain),
		fact("process", strconv.Itoa(n.PID), plain),
		fact("version", orUnknown(n.Version), plain),
		fact("started", m.moment(n.StartedAt), plain),
		fact("instance", orUnknown(instanceText(n.InstanceID)), plain),
	}
	if l := m.nodeLease(n); l != nil {
		lines = append(lines, append([]span{{padRight("lease", 14) + " ", dim}}, m.ttlSpans(l, 30)...))
	}
	prefers := "every role"
	if len(roles) > 0 {
		prefers = strings.Join(roles, ", ")
	}
	return section{"node", append(lines,
		fact("leads", leads, plain),
		fact("prefers", prefers, plain),
		fact("hosts", storeList(n), plain),
		fact("request plane", orUnknown(n.RequestPlane), plain),
		fact("frontend", orUnknown(n.FrontendURL), plain),
		fact("status", orUnknown(n.StatusURL), plain),
	)}
}
