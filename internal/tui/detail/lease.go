package detail

import (
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/moment"
)

// lease is the screen of a lease: how long it lasts, whose it is, and what ends with it.
type lease struct {
	*moment.Moment
	quiet
	id    cluster.InstanceID
	owner string
}

// Lease returns the screen of a lease.
func Lease(m *moment.Moment, l *cluster.Lease) Screen {
	return &lease{Moment: m, id: l.ID, owner: l.Owner}
}

func (m *lease) Header() []draw.Part { return titled(m.Moment, "lease", m.id.String()) }

func (m *lease) Subject() Subject {
	s := Subject{Title: "lease " + m.id.String()}
	if l := m.Lease(m.id); l != nil {
		s.Value = l
	} else {
		s.NoValue = "the lease has ended"
	}
	if w, _ := m.Worker(m.owner); w != nil {
		s.Worker = w.Name
	} else {
		s.NoWorker = notWorker
	}
	s.open(m.Moment, m.owner)
	return s
}

func (m *lease) Sections(int) [][]Section {
	l := m.Lease(m.id)
	if l == nil {
		return [][]Section{{{"lease", [][]draw.Span{
			{draw.Bad.Text("this lease of " + cells.OrUnknown(m.owner) + " has ended")},
			{draw.Plain.Text("It was revoked, or not renewed in time. A worker that lives takes a new one. esc goes back to the panes.")},
		}}}}
	}
	ends := m.At().Add(l.Left - m.Countdown)
	left := append([]draw.Span{draw.Dim.Text(cells.PadRight("left", 14) + " ")}, m.TTL(l, 36)...)
	lines := [][]draw.Span{
		left,
		draw.Fact("granted for", cells.Seconds(l.TTL), draw.Plain),
		draw.Fact("renewed", cells.Seconds(max(l.Renewed+m.Countdown, 0))+" ago", draw.Plain),
		draw.Fact("ends at", ends.In(m.Location).Format("15:04:05")+" unless it is renewed", draw.Plain),
	}
	out := []Section{{"lease", lines}, m.ownerSection(l.Owner)}
	var keys [][]draw.Span
	for _, e := range l.Endpoints {
		keys = append(keys, []draw.Span{draw.Plain.Text(e)})
	}
	if len(keys) == 0 {
		keys = [][]draw.Span{{draw.Dim.Text("no endpoint is registered under it")}}
	}
	return [][]Section{append(out, Section{"endpoints that end with it", keys})}
}

// ownerSection says who renews a lease.
func (m *lease) ownerSection(name string) Section {
	if w, i := m.Worker(name); w != nil {
		age := cells.Unknown
		if moment.Measured(w) {
			age = cells.Seconds(max(m.At().Sub(w.UpdatedAt).Truncate(100*time.Millisecond), 0)) + " ago"
		}
		return Section{"worker " + name, [][]draw.Span{
			append([]draw.Span{draw.Dim.Text(cells.PadRight("state", 14) + " ")}, m.State(w)...),
			{draw.Dim.Text(cells.PadRight("role", 14) + " "), moment.RoleStyle(w.Role).Text(cells.OrUnknown(string(w.Role)))},
			draw.Fact("device", cells.OrUnknown(m.Known.Devices[i]), draw.Plain),
			draw.Fact("node", cells.OrUnknown(w.Node), draw.Plain),
			draw.Fact("last status", age, draw.Plain),
		}}
	}
	if n, facts := m.Node(name); n != nil {
		return Section{"node " + name, [][]draw.Span{
			draw.Fact("host", cells.OrUnknown(n.Host), draw.Plain),
			draw.Fact("devices", moment.DeviceList(n), draw.Plain),
			draw.Fact("workers", cells.Commas(facts.Workers), draw.Plain),
			draw.Fact("up", m.Up(n.StartedAt), draw.Plain),
		}}
	}
	if l := m.Lease(m.id); l != nil && l.Program != nil {
		return m.programSection(l.Program)
	}
	return Section{"owner", [][]draw.Span{{draw.Warn.Text(cells.OrUnknown(name) + " is neither a worker nor a node of the cluster")}}}
}

// programSection describes a service or a program that holds a lease.
func (m *lease) programSection(p *cluster.Program) Section {
	glyph, style := moment.StateLook(m.Glyphs, p.State())
	at := p.Host
	if p.Node != "" {
		at = p.Node
		for i := range m.Snap.Nodes {
			if n := &m.Snap.Nodes[i]; n.ID == p.Node {
				at = n.Name
			}
		}
	}
	lines := [][]draw.Span{
		{draw.Dim.Text(cells.PadRight("state", 14) + " "), style.Text(glyph + " " + string(p.State()))},
		draw.Fact("for", m.Up(p.Since), draw.Plain),
		draw.Fact("at", cells.OrUnknown(at), draw.Plain),
		draw.Fact("joined", m.Up(p.StartedAt)+" ago", draw.Plain),
	}
	if p.Reason != "" {
		lines = append(lines, draw.Fact("because", p.Reason, draw.Warn))
	}
	if p.URL != "" {
		lines = append(lines, draw.Fact("url", p.URL, draw.Plain))
	}
	if p.Model != "" {
		lines = append(lines, draw.Fact("model", p.Model, draw.Plain))
	}
	return Section{string(p.Kind) + " " + p.Name, lines}
}
