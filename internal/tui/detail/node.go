package detail

import (
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/moment"
)

// node is the screen of a node.
type node struct {
	*moment.Moment
	quiet
	name string
}

// Node returns the screen of a node.
func Node(m *moment.Moment, name string) Screen { return &node{Moment: m, name: name} }

func (m *node) Header() []draw.Part { return titled(m.Moment, "node", m.name) }

func (m *node) Subject() Subject {
	s := Subject{Title: m.name, NoWorker: notWorker, NoOpen: noFurther}
	if n, _ := m.Node(m.name); n != nil {
		s.Value, s.Node = n, n.Name
	} else {
		s.NoValue = "the node has left the cluster"
	}
	return s
}

func (m *node) Sections(int) [][]Section {
	n, facts := m.Node(m.name)
	if n == nil {
		return [][]Section{{{"node", [][]draw.Span{
			{draw.Bad.Text("no node " + m.name + " any more")},
			{draw.Plain.Text("It left the cluster, or its lease ended. esc goes back to the panes.")},
		}}}}
	}
	var out []Section
	if len(n.Alarms) > 0 {
		var lines [][]draw.Span
		for _, text := range n.Alarms {
			lines = append(lines, []draw.Span{draw.Bad.Text(text)})
		}
		out = append(out, Section{"alarms", lines})
	}
	return [][]Section{append(out, m.deviceSection(n, facts), gpuSection(n), m.workersSection(n), m.identitySection(n))}
}

// deviceSection lists what workers run on, with what is measured of it.
func (m *node) deviceSection(n *cluster.Node, f *moment.NodeFacts) Section {
	rows := [][]draw.Span{draw.Titles("DEVICE NAME CORES COMPUTES MEMORY WORKERS USE")}
	for i := range n.Devices {
		d := &n.Devices[i]
		cores, memory, use := cells.Unknown, cells.Unknown, percentSign(f.UseOf(d.ID))
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
		return Section{"devices", [][]draw.Span{{draw.Dim.Text("the node reports none")}}}
	}
	lines := draw.Grid(rows, []bool{false, false, true, false, true, true, true})
	return Section{"devices", append(lines, []draw.Span{draw.Dim.Text("use: share of the last second in which the engines computed")})}
}

// workersOf calls f for each worker of a node.
func (m *node) workersOf(n *cluster.Node, f func(w *cluster.Worker)) {
	for i := range m.Snap.Workers {
		if w := &m.Snap.Workers[i]; w.Node == n.Name || w.Node == n.ID {
			f(w)
		}
	}
}

func (m *node) workersSection(n *cluster.Node) Section {
	rows := [][]draw.Span{draw.Titles("WORKER ROLE DEVICE STATE SEQS KV TOK/S USE")}
	m.workersOf(n, func(w *cluster.Worker) {
		glyph, st := moment.StateLook(m.Glyphs, w.State)
		rows = append(rows, []draw.Span{
			draw.Strong.Text(w.Name), moment.RoleStyle(w.Role).Text(cells.OrUnknown(string(w.Role))), draw.Plain.Text(cells.OrUnknown(w.Device)), st.Text(glyph + " " + moment.StateWord(w)),
			draw.Plain.Text(moment.Sequences(w)), draw.Plain.Text(moment.KVText(w)), draw.Plain.Text(cells.CompactOr(w.TokS)), draw.Plain.Text(percentSign(w.Busy)),
		})
	})
	if len(rows) == 1 {
		return Section{"workers", [][]draw.Span{{draw.Dim.Text("none on this node")}}}
	}
	return Section{"workers (" + cells.Commas(len(rows)-1) + ")", draw.Grid(rows, []bool{false, false, false, false, true, true, true, true})}
}

func (m *node) identitySection(n *cluster.Node) Section {
	var roles []string
	for _, r := range n.Roles {
		roles = append(roles, string(r))
	}
	leads := "no"
	if m.Snap.Leader == n.Name || m.Snap.Leader == n.ID {
		leads = "yes"
	}
	lines := [][]draw.Span{
		draw.Fact("id", cells.OrUnknown(n.ID), draw.Plain),
		draw.Fact("host", cells.OrUnknown(n.Host), draw.Plain),
		draw.Fact("process", strconv.Itoa(n.PID), draw.Plain),
		draw.Fact("version", cells.OrUnknown(n.Version), draw.Plain),
		draw.Fact("started", stamp(m.Moment, n.StartedAt), draw.Plain),
		draw.Fact("instance", cells.OrUnknown(moment.Instance(n.InstanceID)), draw.Plain),
	}
	if l := m.NodeLease(n); l != nil {
		lines = append(lines, append([]draw.Span{draw.Dim.Text(cells.PadRight("lease", 14) + " ")}, m.TTL(l, 30)...))
	}
	prefers := "every role"
	if len(roles) > 0 {
		prefers = strings.Join(roles, ", ")
	}
	return Section{"node", append(lines,
		draw.Fact("leads", leads, draw.Plain),
		draw.Fact("prefers", prefers, draw.Plain),
		draw.Fact("hosts", moment.StoreList(n), draw.Plain),
		draw.Fact("request plane", cells.OrUnknown(n.RequestPlane), draw.Plain),
		draw.Fact("frontend", cells.OrUnknown(n.FrontendURL), draw.Plain),
		draw.Fact("status", cells.OrUnknown(n.StatusURL), draw.Plain),
	)}
}
