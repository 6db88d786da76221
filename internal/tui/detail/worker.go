package detail

import (
	"fmt"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/moment"
)

// worker is the screen of a worker: what it does on the left, what it is on the right.
type worker struct {
	*moment.Moment
	name string
}

// Worker returns the screen of a worker.
func Worker(m *moment.Moment, name string) Screen { return &worker{m, name} }

func (m *worker) Asks() string { return m.name }

func (m *worker) Subject() Subject {
	s := Subject{Title: m.name, Worker: m.name}
	w, _ := m.Worker(m.name)
	if w == nil {
		s.NoValue = m.NoWorker(m.name)
		s.NoOpen = s.NoValue
		return s
	}
	s.Value = w
	s.open(m.Moment, w.Node)
	return s
}

func (m *worker) Header() []draw.Part {
	parts := []draw.Part{{Spans: []draw.Span{draw.Dim.Text("dynctl top " + m.Glyphs.Cursor + " "), draw.Strong.Text(m.name)}}}
	add := func(leave int, spans ...draw.Span) { parts = append(parts, draw.Part{Spans: spans, Leave: leave}) }
	w, i := m.Worker(m.name)
	if w == nil {
		add(5, draw.Bad.Text(m.Glyphs.Lost+" gone from the list"))
		return parts
	}
	add(4, moment.RoleStyle(w.Role).Text(cells.OrUnknown(string(w.Role))))
	add(3, draw.Plain.Text(cells.OrUnknown(m.Known.Devices[i])))
	add(5, m.State(w)...)
	if w.Lease != nil {
		add(2, append([]draw.Span{draw.Dim.Text("lease ")}, m.LeaseLeft(*w.Lease, 0)...)...)
	}
	if w.Uptime != nil {
		add(2, draw.Dim.Text("up "), draw.Plain.Text(cells.Uptime(*w.Uptime+m.Age)))
	}
	return parts
}

func (m *worker) Sections(width int) [][]Section {
	w, i := m.Worker(m.name)
	if w == nil {
		return [][]Section{{{"worker", [][]draw.Span{
			{draw.Bad.Text(m.NoWorker(m.name) + " any more")},
			{draw.Plain.Text("It left the cluster. esc goes back to the panes.")},
		}}}}
	}
	left := []Section{m.sequenceSection(w)}
	if w.Drain != nil {
		left = append(left, m.drainSection(w))
	}
	if !w.Role.HoldsKV() {
		return stack(width, append(left, m.transferSection(w)), []Section{m.identitySection(w, i), m.totalsSection(w)})
	}
	left = append(left, m.transferSection(w), m.routedSection(w))
	right := []Section{m.kvSection(w), m.identitySection(w, i), m.totalsSection(w), m.kvEventSection(w)}
	return stack(width, left, right)
}

func percentSign(p *float64) string {
	if s := cells.Percent(p); s != cells.Unknown {
		return s + "%"
	}
	return cells.Unknown
}

// kvSection shows where the KV blocks are, and whether the counts add up.
func (m *worker) kvSection(w *cluster.Worker) Section {
	s := &w.Stats
	sum := s.KVUsed() + s.KVCached
	line := func(name string, n int, st draw.Style) []draw.Span {
		out := []draw.Span{draw.Dim.Text(cells.PadRight(name, 12))}
		if s.KVTotal > 0 && moment.Measured(w) {
			out = append(out, draw.Bar(m.Glyphs, float64(n)/float64(s.KVTotal), 16, st)...)
			out = append(out, draw.Plain.Text("  "))
		}
		return append(out, draw.Plain.Text(cells.PadLeft(moment.Number(w, n), 7)))
	}
	lines := [][]draw.Span{
		line("active", s.KVActive, draw.Good),
		line("cached", s.KVCached, draw.Focused),
		line("incoming", s.KVIncoming, draw.Warn),
		line("outgoing", s.KVOutgoing, draw.Warn),
	}
	if s.Quarantined > 0 {
		lines = append(lines, line("quarantined", s.Quarantined, draw.Bad))
	}
	free, check, st := s.KVTotal-sum, "the counts fit in the total", draw.Good
	switch {
	case !moment.Measured(w) || s.KVTotal <= 0:
		check, st = cells.Unknown, draw.Plain
	case free < 0:
		check, st = fmt.Sprintf("%s the counts exceed the total by %d", m.Glyphs.Lost, -free), draw.Bad
	}
	lines = append(lines, line("free", max(free, 0), draw.Plain))
	block := cells.Unknown
	if s.BlockSize > 0 {
		block = fmt.Sprintf("%d tokens", s.BlockSize)
	}
	return Section{"KV blocks " + moment.KVText(w), append(lines, []draw.Span{draw.Dim.Text(cells.PadRight("block", 12)), draw.Plain.Text(block)}, []draw.Span{draw.Dim.Text(cells.PadRight("check", 12)), st.Text(check)})}
}

// modelText is the model of a worker with the type of its weights.
func modelText(w *cluster.Worker) string {
	if w.Weights == "" {
		return cells.OrUnknown(w.Model)
	}
	return cells.OrUnknown(w.Model) + " in " + w.Weights
}

// adaptersText lists the LoRA adapters of a worker's server, or counts them and lists the first.
func adaptersText(names []string) string {
	const most = 6
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%d: %s, ...", len(names), strings.Join(names[:most], ", "))
}

func (m *worker) identitySection(w *cluster.Worker, i int) Section {
	st := draw.Plain
	lines := [][]draw.Span{
		draw.Fact("model", modelText(w), draw.Plain),
	}
	if s := w.ServerStatus; s != nil && len(s.Adapters) > 0 {
		lines = append(lines, draw.Fact("adapters", adaptersText(s.Adapters), draw.Plain))
	}
	lines = append(lines,
		draw.Fact("TP degree", moment.Degree(w.TensorParallel), draw.Plain),
		draw.Fact("node", cells.OrUnknown(w.Node), draw.Plain),
		draw.Fact("host", cells.OrUnknown(m.Known.Hosts[i]), draw.Plain),
		draw.Fact("version", cells.OrUnknown(m.Known.Versions[i]), draw.Plain),
		draw.Fact("instance", cells.OrUnknown(moment.Instance(w.InstanceID)), draw.Plain),
	)
	if w.Lease != nil {
		ttl := cells.Unknown
		if w.LeaseTTLMS > 0 {
			ttl = cells.Seconds(time.Duration(w.LeaseTTLMS) * time.Millisecond)
		}
		lease := append([]draw.Span{draw.Dim.Text(cells.PadRight("lease", 14) + " ")}, m.LeaseLeft(*w.Lease, time.Duration(w.LeaseTTLMS)*time.Millisecond)...)
		lines = append(lines, append(lease, draw.Plain.Text(" of "+ttl)))
	}
	lines = append(lines, draw.Fact("started", stamp(m.Moment, w.StartedAt), draw.Plain))
	updated := stamp(m.Moment, w.UpdatedAt)
	if w.Stale {
		st = draw.Warn
		updated += " (stale)"
	}
	lines = append(lines, draw.Fact("last status", updated, st), draw.Fact("desired", cells.OrUnknown(string(w.Desire)), draw.Plain))
	if w.Reason != "" {
		lines = append(lines, draw.Fact("reason", w.Reason, draw.Warn))
	}
	lines = append(lines, draw.Fact("restarts", cells.Commas(w.Restarts), draw.Plain))
	if !w.RetryAt.IsZero() {
		lines = append(lines, draw.Fact("next start", "in "+cells.Age(max(w.RetryAt.Sub(m.At()), 0)), draw.Plain))
	}
	return Section{"worker", append(lines, draw.Fact("generation", cells.Commas(w.Generation), draw.Plain))}
}

// stamp is a time with how long ago it was.
func stamp(m *moment.Moment, t time.Time) string {
	if t.IsZero() {
		return cells.Unknown
	}
	return t.In(m.Location).Format("2006-01-02 15:04:05") + ", " + cells.Age(m.At().Sub(t)) + " ago"
}

func (m *worker) totalsSection(w *cluster.Worker) Section {
	s := &w.Stats
	if !w.Role.HoldsKV() {
		return Section{"since its start", [][]draw.Span{
			draw.Fact("asked for", moment.Number(w, s.RequestsTotal)+" images", draw.Plain),
			draw.Fact("encoded", moment.Number(w, s.EncodedTotal), draw.Plain),
			draw.Fact("from cache", moment.Number(w, s.ImagesCachedTotal), draw.Plain),
			draw.Fact("read", moment.Number(w, s.FinishedTotal), draw.Plain),
			draw.Fact("not read", moment.Number(w, s.CancelledTotal), draw.Plain),
		}}
	}
	lines := [][]draw.Span{
		draw.Fact("requests", moment.Number(w, s.RequestsTotal), draw.Plain),
		draw.Fact("finished", moment.Number(w, s.FinishedTotal), draw.Plain),
		draw.Fact("cancelled", moment.Number(w, s.CancelledTotal), draw.Plain),
		draw.Fact("rejected", moment.Number(w, s.RejectedTotal), draw.Plain),
	}
	return Section{"since its start", append(lines,
		draw.Fact("preempted", moment.Number(w, s.PreemptedTotal), draw.Plain),
		draw.Fact("evicted", moment.Number(w, s.EvictedTotal)+" blocks", draw.Plain),
		draw.Fact("prompt", moment.Number(w, s.PromptTokensTotal)+" tokens", draw.Plain),
		draw.Fact("from cache", moment.Number(w, s.CachedTokensTotal)+" tokens", draw.Plain),
		draw.Fact("computed", moment.Number(w, s.ComputedTotal)+" tokens", draw.Plain),
		draw.Fact("generated", moment.Number(w, s.GeneratedTotal)+" tokens", draw.Plain),
		draw.Fact("steps", moment.Number(w, s.StepsTotal), draw.Plain),
	)}
}

// detailRows bounds the lists of recent things on a detail screen.
const detailRows = 8

// routedSection lists the newest decisions that concern the worker.
func (m *worker) routedSection(w *cluster.Worker) Section {
	rows := [][]draw.Span{draw.Titles("TIME REQUEST PREFILL DECODE OVERLAP COST")}
	for i := range m.Snap.Decisions {
		d := &m.Snap.Decisions[i]
		if d.Chosen != w.Name && d.Prefill != w.Name || len(rows) > detailRows {
			continue
		}
		p, dec := moment.Stages(d)
		cost := cells.Unknown
		if c := moment.Chosen(d); c != nil {
			cost = moment.CostText(c.Cost)
		}
		rows = append(rows, []draw.Span{
			draw.Dim.Text(m.TimeOfDay(d.Time)), draw.Plain.Text(cells.ClipMiddle(cells.OrUnknown(d.RequestID), 12, m.Glyphs.More)), draw.Prefill.Text(p), draw.Decode.Text(dec),
			draw.Plain.Text(moment.OverlapText(d)), draw.Plain.Text(cost),
		})
	}
	if len(rows) == 1 {
		return Section{"router decisions", [][]draw.Span{{draw.Dim.Text("none among the newest")}}}
	}
	return Section{"router decisions", draw.Grid(rows, []bool{false, false, false, false, true, true})}
}

// kvEventSection lists the newest KV events of the worker.
func (m *worker) kvEventSection(w *cluster.Worker) Section {
	rows := [][]draw.Span{draw.Titles("TIME EVENT BLOCKS PREFIX")}
	for i := range m.Snap.Events {
		e := &m.Snap.Events[i]
		if e.Worker == w.Name && len(rows) <= detailRows {
			rows = append(rows, []draw.Span{draw.Dim.Text(m.TimeOfDay(e.Time)), moment.EventStyle(e.Kind).Text(cells.OrUnknown(string(e.Kind))), draw.Plain.Text(moment.EventBlocks(e)), draw.Dim.Text(m.EventPrefix(e, 4))})
		}
	}
	if len(rows) == 1 {
		return Section{"KV events", [][]draw.Span{{draw.Dim.Text("none among the newest")}}}
	}
	return Section{"KV events", draw.Grid(rows, []bool{false, false, true})}
}
