package tui

import (
	"fmt"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
)

// workerParts are the header of a worker's screen.
func (m *model) workerParts() []part {
	name := m.detail.worker
	parts := []part{
		{[]draw.Span{draw.Dim.Text("dynctl top " + m.glyphs.Cursor + " "), draw.Strong.Text(name)}, 0},
	}
	w, i := m.worker(name)
	if w == nil {
		return append(parts, part{[]draw.Span{draw.Bad.Text(m.glyphs.Lost + " gone from the list")}, 5})
	}
	parts = append(parts,
		part{[]draw.Span{roleStyle(w.Role).Text(cells.OrUnknown(string(w.Role)))}, 4},
		part{[]draw.Span{draw.Plain.Text(cells.OrUnknown(m.known.devices[i]))}, 3},
		part{m.stateSpans(w), 5},
	)
	if w.Lease != nil {
		parts = append(parts, part{append([]draw.Span{draw.Dim.Text("lease ")}, m.leaseSpans(*w.Lease, 0)...), 2})
	}
	if w.Uptime != nil {
		parts = append(parts, part{[]draw.Span{draw.Dim.Text("up "), draw.Plain.Text(cells.Uptime(*w.Uptime + m.since()))}, 2})
	}
	return parts
}

// workerSections are the boxes of a worker's screen, in two columns: what it
// does, and what it is.
func (m *model) workerSections() [][]section {
	w, i := m.worker(m.detail.worker)
	if w == nil {
		return [][]section{{{"worker", [][]draw.Span{
			{draw.Bad.Text(m.noWorker(m.detail.worker) + " any more")},
			{draw.Plain.Text("It left the cluster. esc goes back to the panes.")},
		}}}}
	}
	left := []section{m.sequenceSection(w)}
	if w.Drain != nil {
		left = append(left, m.drainSection(w.Drain))
	}
	left = append(left, m.transferSection(w), m.routedSection(w))
	right := []section{m.kvSection(w), m.identitySection(w, i), m.totalsSection(w), m.kvEventSection(w)}
	return [][]section{left, right}
}

// number prints a figure of a worker that may never have told any.
func number[T int | uint64](w *cluster.Worker, n T) string {
	if !measured(w) {
		return cells.Unknown
	}
	return cells.Commas(n)
}

func percentSign(p *float64) string {
	if s := cells.Percent(p); s != cells.Unknown {
		return s + "%"
	}
	return cells.Unknown
}

// kvSection shows where the KV blocks are, and whether the counts add up.
func (m *model) kvSection(w *cluster.Worker) section {
	s := &w.Stats
	sum := s.KVUsed() + s.KVCached
	line := func(name string, n int, st draw.Style) []draw.Span {
		out := []draw.Span{draw.Dim.Text(cells.PadRight(name, 12))}
		if s.KVTotal > 0 && measured(w) {
			out = append(out, draw.Bar(m.glyphs, float64(n)/float64(s.KVTotal), 16, st)...)
			out = append(out, draw.Plain.Text("  "))
		}
		return append(out, draw.Plain.Text(cells.PadLeft(number(w, n), 7)))
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
	case !measured(w) || s.KVTotal <= 0:
		check, st = cells.Unknown, draw.Plain
	case free < 0:
		check, st = fmt.Sprintf("%s the counts exceed the total by %d", m.glyphs.Lost, -free), draw.Bad
	}
	lines = append(lines, line("free", max(free, 0), draw.Plain))
	block := cells.Unknown
	if s.BlockSize > 0 {
		block = fmt.Sprintf("%d tokens", s.BlockSize)
	}
	return section{"KV blocks " + kvNumber(w), append(lines, []draw.Span{draw.Dim.Text(cells.PadRight("block", 12)), draw.Plain.Text(block)}, []draw.Span{draw.Dim.Text(cells.PadRight("check", 12)), st.Text(check)})}
}

// modelText is the model of a worker with the type of its weights.
func modelText(w *cluster.Worker) string {
	if w.Weights == "" {
		return cells.OrUnknown(w.Model)
	}
	return cells.OrUnknown(w.Model) + " in " + w.Weights
}

// degreeText is a tensor-parallel degree, which is not known before the model is loaded.
func degreeText(n int) string {
	if n == 0 {
		return cells.Unknown
	}
	return cells.Commas(n)
}

func (m *model) identitySection(w *cluster.Worker, i int) section {
	st := draw.Plain
	lines := [][]draw.Span{
		draw.Fact("model", modelText(w), draw.Plain),
		draw.Fact("TP degree", degreeText(w.TensorParallel), draw.Plain),
		draw.Fact("node", cells.OrUnknown(w.Node), draw.Plain),
		draw.Fact("host", cells.OrUnknown(m.known.hosts[i]), draw.Plain),
		draw.Fact("version", cells.OrUnknown(m.known.versions[i]), draw.Plain),
		draw.Fact("instance", cells.OrUnknown(instanceText(w.InstanceID)), draw.Plain),
	}
	if w.Lease != nil {
		ttl := cells.Unknown
		if w.LeaseTTLMS > 0 {
			ttl = cells.Seconds(time.Duration(w.LeaseTTLMS) * time.Millisecond)
		}
		lease := append([]draw.Span{draw.Dim.Text(cells.PadRight("lease", 14) + " ")}, m.leaseSpans(*w.Lease, time.Duration(w.LeaseTTLMS)*time.Millisecond)...)
		lines = append(lines, append(lease, draw.Plain.Text(" of "+ttl)))
	}
	lines = append(lines, draw.Fact("started", m.moment(w.StartedAt), draw.Plain))
	updated := m.moment(w.UpdatedAt)
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
		lines = append(lines, draw.Fact("next start", "in "+cells.Age(max(w.RetryAt.Sub(m.at()), 0)), draw.Plain))
	}
	return section{"worker", append(lines, draw.Fact("generation", cells.Commas(w.Generation), draw.Plain))}
}

func instanceText(id cluster.InstanceID) string {
	if id == 0 {
		return ""
	}
	return id.String()
}

// moment is a time with how long ago it was.
func (m *model) moment(t time.Time) string {
	if t.IsZero() {
		return cells.Unknown
	}
	return t.In(m.opts.Location).Format("2006-01-02 15:04:05") + ", " + cells.Age(m.at().Sub(t)) + " ago"
}

func (m *model) totalsSection(w *cluster.Worker) section {
	s := &w.Stats
	return section{"since its start", [][]draw.Span{
		draw.Fact("requests", number(w, s.RequestsTotal), draw.Plain),
		draw.Fact("finished", number(w, s.FinishedTotal), draw.Plain),
		draw.Fact("cancelled", number(w, s.CancelledTotal), draw.Plain),
		draw.Fact("rejected", number(w, s.RejectedTotal), draw.Plain),
		draw.Fact("preempted", number(w, s.PreemptedTotal), draw.Plain),
		draw.Fact("evicted", number(w, s.EvictedTotal)+" blocks", draw.Plain),
		draw.Fact("prompt", number(w, s.PromptTokensTotal)+" tokens", draw.Plain),
		draw.Fact("from cache", number(w, s.CachedTokensTotal)+" tokens", draw.Plain),
		draw.Fact("computed", number(w, s.ComputedTotal)+" tokens", draw.Plain),
		draw.Fact("generated", number(w, s.GeneratedTotal)+" tokens", draw.Plain),
		draw.Fact("steps", number(w, s.StepsTotal), draw.Plain),
	}}
}

// detailRows bounds the lists of recent things on a detail screen.
const detailRows = 8

// routedSection lists the newest decisions that concern the worker.
func (m *model) routedSection(w *cluster.Worker) section {
	rows := [][]draw.Span{draw.Titles("TIME REQUEST PREFILL DECODE OVERLAP COST")}
	for i := range m.snap.Decisions {
		d := &m.snap.Decisions[i]
		if d.Chosen != w.Name && d.Prefill != w.Name || len(rows) > detailRows {
			continue
		}
		p, dec := stages(d)
		cost := cells.Unknown
		if c := chosenCandidate(d); c != nil {
			cost = costText(c.Cost)
		}
		rows = append(rows, []draw.Span{
			draw.Dim.Text(m.timeOfDay(d.Time)), draw.Plain.Text(cells.ClipMiddle(cells.OrUnknown(d.RequestID), 12, m.glyphs.More)), draw.Prefill.Text(p), draw.Decode.Text(dec),
			draw.Plain.Text(overlapText(d)), draw.Plain.Text(cost),
		})
	}
	if len(rows) == 1 {
		return section{"router decisions", [][]draw.Span{{draw.Dim.Text("none among the newest")}}}
	}
	return section{"router decisions", draw.Grid(rows, []bool{false, false, false, false, true, true})}
}

// kvEventSection lists the newest KV events of the worker.
func (m *model) kvEventSection(w *cluster.Worker) section {
	rows := [][]draw.Span{draw.Titles("TIME EVENT BLOCKS PREFIX")}
	for i := range m.snap.Events {
		e := &m.snap.Events[i]
		if e.Worker == w.Name && len(rows) <= detailRows {
			rows = append(rows, []draw.Span{draw.Dim.Text(m.timeOfDay(e.Time)), eventStyle(e.Kind).Text(cells.OrUnknown(string(e.Kind))), draw.Plain.Text(eventBlocks(e)), draw.Dim.Text(m.eventPrefix(e))})
		}
	}
	if len(rows) == 1 {
		return section{"KV events", [][]draw.Span{{draw.Dim.Text("none among the newest")}}}
	}
	return section{"KV events", draw.Grid(rows, []bool{false, false, true})}
}

// drainSection shows how far a drain has come. It says safe only when the worker
// does.
func (m *model) drainSection(d *cluster.DrainStatus) section {
	g := m.glyphs
	now := slices.Index(cluster.DrainSteps, d.Step)
	ended := !d.EndedAt.IsZero() || d.Safe
	var lines [][]draw.Span
	for i, step := range cluster.DrainSteps {
		glyph, st := g.Starting, draw.Dim
		switch {
		case ended || i < now:
			glyph, st = g.Ready, draw.Good
		case i == now:
			glyph, st = g.Draining, draw.Warn
		}
		text := string(step)
		switch step {
		case cluster.DrainDiscovery:
			if d.Routers > 0 {
				text = fmt.Sprintf("%-18s %d of %d routers acknowledged", step, d.Acknowledged, d.Routers)
			}
		case cluster.DrainIncoming:
			text = fmt.Sprintf("%-18s %d transfers pending", step, d.Incoming)
		case cluster.DrainSequences:
			text = fmt.Sprintf("%-18s %d of %d left", step, d.Left, d.Sequences)
		case cluster.DrainOutgoing:
			text = fmt.Sprintf("%-18s %d held for others", step, d.Outgoing)
		}
		lines = append(lines, []draw.Span{st.Text(glyph + " "), draw.Plain.Text(text)})
	}
	done := fmt.Sprintf("%d finished  %d moved  %d cancelled", d.Finished, d.Moved, d.Cancelled)
	lines = append(lines, draw.Fact("so far", done, draw.Plain))
	switch {
	case d.Safe:
		lines = append(lines, []draw.Span{draw.Good.Text(g.Drained + " drained: safe to stop")})
	case d.Overdue:
		lines = append(lines, []draw.Span{draw.Bad.Text(g.Degraded + " the deadline passed with work left")})
	case !d.Deadline.IsZero():
		lines = append(lines, draw.Fact("deadline", "in "+cells.ClockLeft(d.Deadline.Sub(m.at())), draw.Plain))
	}
	if len(d.Open) > 0 {
		rows := [][]draw.Span{draw.Titles("REQUEST OUT AGE")}
		for _, o := range d.Open[:min(len(d.Open), 10)] {
			rows = append(rows, []draw.Span{
				draw.Plain.Text(cells.ClipMiddle(cells.OrUnknown(o.RequestID), 24, g.More)), draw.Plain.Text(cells.Commas(o.OutTokens)),
				draw.Plain.Text(cells.ClockLeft(time.Duration(o.AgeMS) * time.Millisecond)),
			})
		}
		lines = append(lines, draw.Grid(rows, []bool{false, true, true})...)
	}
	return section{"drain", lines}
}
