package tui

import (
	"time"

	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
)

// leaseSections are the boxes of a lease's screen: how long it lasts, whose it is, and
// what ends with it.
func (m *model) leaseSections() []section {
	i, ok := m.known.leaseAt[m.detail.lease]
	if !ok {
		return []section{{"lease", [][]draw.Span{
			{draw.Bad.Text("this lease of " + cells.OrUnknown(m.detail.owner) + " has ended")},
			{draw.Plain.Text("It was revoked, or not renewed in time. A worker that lives takes a new one. esc goes back to the panes.")},
		}}}
	}
	l := &m.snap.Leases[i]
	ends := m.at().Add(l.Left - m.countdown())
	left := append([]draw.Span{draw.Dim.Text(cells.PadRight("left", 14) + " ")}, m.ttlSpans(l, 36)...)
	lines := [][]draw.Span{
		left,
		draw.Fact("granted for", cells.Seconds(l.TTL), draw.Plain),
		draw.Fact("renewed", cells.Seconds(max(l.Renewed+m.countdown(), 0))+" ago", draw.Plain),
		draw.Fact("ends at", ends.In(m.opts.Location).Format("15:04:05")+" unless it is renewed", draw.Plain),
	}
	out := []section{{"lease", lines}, m.leaseOwner(l.Owner)}
	var keys [][]draw.Span
	for _, e := range l.Endpoints {
		keys = append(keys, []draw.Span{draw.Plain.Text(e)})
	}
	if len(keys) == 0 {
		keys = [][]draw.Span{{draw.Dim.Text("no endpoint is registered under it")}}
	}
	return append(out, section{"endpoints that end with it", keys})
}

// leaseOwner says who renews a lease.
func (m *model) leaseOwner(name string) section {
	if w, i := m.worker(name); w != nil {
		age := cells.Unknown
		if measured(w) {
			age = cells.Seconds(max(m.at().Sub(w.UpdatedAt).Truncate(100*time.Millisecond), 0)) + " ago"
		}
		return section{"worker " + name, [][]draw.Span{
			append([]draw.Span{draw.Dim.Text(cells.PadRight("state", 14) + " ")}, m.stateSpans(w)...),
			{draw.Dim.Text(cells.PadRight("role", 14) + " "), roleStyle(w.Role).Text(cells.OrUnknown(string(w.Role)))},
			draw.Fact("device", cells.OrUnknown(m.known.devices[i]), draw.Plain),
			draw.Fact("node", cells.OrUnknown(w.Node), draw.Plain),
			draw.Fact("last status", age, draw.Plain),
		}}
	}
	if i, ok := m.known.nodeAt[name]; ok {
		n := &m.snap.Nodes[i]
		return section{"node " + name, [][]draw.Span{
			draw.Fact("host", cells.OrUnknown(n.Host), draw.Plain),
			draw.Fact("devices", deviceList(n), draw.Plain),
			draw.Fact("workers", cells.Commas(m.known.nodes[i].workers), draw.Plain),
			draw.Fact("up", m.up(n.StartedAt), draw.Plain),
		}}
	}
	return section{"owner", [][]draw.Span{{draw.Warn.Text(cells.OrUnknown(name) + " is neither a worker nor a node of the cluster")}}}
}
