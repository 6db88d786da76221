package tui

import (
	"fmt"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// workerParts are the header of a worker's screen.
func (m *model) workerParts() []part {
	name := m.detail.worker
	parts := []part{
		{[]span{{"dynctl top " + m.glyphs.cursor + " ", dim}, {name, strong}}, 0},
	}
	w, i := m.worker(name)
	if w == nil {
		return append(parts, part{[]span{{m.glyphs.lost + " gone from the list", bad}}, 5})
	}
	parts = append(parts,
		part{[]span{{orUnknown(string(w.Role)), roleStyle(w.Role)}}, 4},
		part{[]span{{orUnknown(m.known.devices[i]), plain}}, 3},
		part{m.stateSpans(w), 5},
	)
	if w.Lease != nil {
		parts = append(parts, part{append([]span{{"lease ", dim}}, m.leaseSpans(*w.Lease, 0)...), 2})
	}
	if w.Uptime != nil {
		parts = append(parts, part{[]span{{"up ", dim}, {uptime(*w.Uptime + m.since()), plain}}, 2})
	}
	return parts
}

// workerSections are the boxes of a worker's screen, in two columns: what it
// does, and what it is.
func (m *model) workerSections() [][]section {
	w, i := m.worker(m.detail.worker)
	if w == nil {
		return [][]section{{{"worker", [][]span{
			{{m.noWorker(m.detail.worker) + " any more", bad}},
			{{"It left the cluster. esc goes back to the panes.", plain}},
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
		return unknown
	}
	return commas(n)
}

func percentSign(p *float64) string {
	if s := percent(p); s != unknown {
		return s + "%"
	}
	return unknown
}

// kvSection shows where the KV blocks are, and whether the counts add up.
func (m *model) kvSection(w *cluster.Worker) section {
	s := &w.Stats
	sum := s.KVUsed() + s.KVCached
	line := func(name string, n int, st style) []span {
		out := []span{{padRight(name, 12), dim}}
		if s.KVTotal > 0 && measured(w) {
			out = append(out, bar(m.glyphs, float64(n)/float64(s.KVTotal), 16, st)...)
			out = append(out, span{"  ", plain})
		}
		return append(out, span{padLeft(number(w, n), 7), plain})
	}
	lines := [][]span{
		line("active", s.KVActive, good),
		line("cached", s.KVCached, focused),
		line("incoming", s.KVIncoming, warn),
		line("outgoing", s.KVOutgoing, warn),
	}
	if s.Quarantined > 0 {
		lines = append(lines, line("quarantined", s.Quarantined, bad))
	}
	free, check, st := s.KVTotal-sum, "the counts fit in the total", good
	switch {
	case !measured(w) || s.KVTotal <= 0:
		check, st = unknown, plain
	case free < 0:
		check, st = fmt.Sprintf("%s the counts exceed the total by %d", m.glyphs.lost, -free), bad
	}
	lines = append(lines, line("free", max(free, 0), plain))
	block := unknown
	if s.BlockSize > 0 {
		block = fmt.Sprintf("%d tokens", s.BlockSize)
	}
	return section{"KV blocks " + kvNumber(w), append(lines, []span{{padRight("block", 12), dim}, {block, plain}}, []span{{padRight("check", 12), dim}, {check, st}})}
}

// modelText is the model of a worker with the type of its weights.
func modelText(w *cluster.Worker) string {
	if w.Weights == "" {
		return orUnknown(w.Model)
	}
	return orUnknown(w.Model) + " in " + w.Weights
}

// degreeText is a tensor-parallel degree, which is not known before the model is loaded.
func degreeText(n int) string {
	if n == 0 {
		return unknown
	}
	return commas(n)
}

func (m *model) identitySection(w *cluster.Worker, i int) section {
	st := plain
	lines := [][]span{
		fact("model", modelText(w), plain),
		fact("TP degree", degreeText(w.TensorParallel), plain),
		fact("node", orUnknown(w.Node), plain),
		fact("host", orUnknown(m.known.hosts[i]), plain),
		fact("version", orUnknown(m.known.versions[i]), plain),
		fact("instance", orUnknown(instanceText(w.InstanceID)), plain),
	}
	if w.Lease != nil {
		ttl := unknown
		if w.LeaseTTLMS > 0 {
			ttl = seconds(time.Duration(w.LeaseTTLMS) * time.Millisecond)
		}
		lease := append([]span{{padRight("lease", 14) + " ", dim}}, m.leaseSpans(*w.Lease, time.Duration(w.LeaseTTLMS)*time.Millisecond)...)
		lines = append(lines, append(lease, span{" of " + ttl, plain}))
	}
	lines = append(lines, fact("started", m.moment(w.StartedAt), plain))
	updated := m.moment(w.UpdatedAt)
	if w.Stale {
		st = warn
		updated += " (stale)"
	}
	lines = append(lines, fact("last status", updated, st), fact("desired", orUnknown(string(w.Desire)), plain))
	if w.Reason != "" {
		lines = append(lines, fact("reason", w.Reason, warn))
	}
	lines = append(lines, fact("restarts", commas(w.Restarts), plain))
	if !w.RetryAt.IsZero() {
		lines = append(lines, fact("next start", "in "+age(max(w.RetryAt.Sub(m.at()), 0)), plain))
	}
	return section{"worker", append(lines, fact("generation", commas(w.Generation), plain))}
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
		return unknown
	}
	return t.In(m.opts.Location).Format("2006-01-02 15:04:05") + ", " + age(m.at().Sub(t)) + " ago"
}

func (m *model) totalsSection(w *cluster.Worker) section {
	s := &w.Stats
	return section{"since its start", [][]span{
		fact("requests", number(w, s.RequestsTotal), plain),
		fact("finished", number(w, s.FinishedTotal), plain),
		fact("cancelled", number(w, s.CancelledTotal), plain),
		fact("rejected", number(w, s.RejectedTotal), plain),
		fact("preempted", number(w, s.PreemptedTotal), plain),
		fact("evicted", number(w, s.EvictedTotal)+" blocks", plain),
		fact("prompt", number(w, s.PromptTokensTotal)+" tokens", plain),
		fact("from cache", number(w, s.CachedTokensTotal)+" tokens", plain),
		fact("computed", number(w, s.ComputedTotal)+" tokens", plain),
		fact("generated", number(w, s.GeneratedTotal)+" tokens", plain),
		fact("steps", number(w, s.StepsTotal), plain),
	}}
}

// detailRows bounds the lists of recent things on a detail screen.
const detailRows = 8

// routedSection lists the newest decisions that concern the worker.
func (m *model) routedSection(w *cluster.Worker) section {
	rows := [][]span{titleRow("TIME REQUEST PREFILL DECODE OVERLAP COST")}
	for i := range m.snap.Decisions {
		d := &m.snap.Decisions[i]
		if d.Chosen != w.Name && d.Prefill != w.Name || len(rows) > detailRows {
			continue
		}
		p, dec := stages(d)
		cost := unknown
		if c := chosenCandidate(d); c != nil {
			cost = costText(c.Cost)
		}
		rows = append(rows, []span{
			{m.timeOfDay(d.Time), dim}, {clipMiddle(orUnknown(d.RequestID), 12, m.glyphs.more), plain}, {p, prefill}, {dec, decode},
			{overlapText(d), plain}, {cost, plain},
		})
	}
	if len(rows) == 1 {
		return section{"router decisions", [][]span{{{"none among the newest", dim}}}}
	}
	return section{"router decisions", gridLines(rows, []bool{false, false, false, false, true, true})}
}

// kvEventSection lists the newest KV events of the worker.
func (m *model) kvEventSection(w *cluster.Worker) section {
	rows := [][]span{titleRow("TIME EVENT BLOCKS PREFIX")}
	for i := range m.snap.Events {
		e := &m.snap.Events[i]
		if e.Worker == w.Name && len(rows) <= detailRows {
			rows = append(rows, []span{{m.timeOfDay(e.Time), dim}, {orUnknown(string(e.Kind)), eventStyle(e.Kind)}, {eventBlocks(e), plain}, {m.eventPrefix(e), dim}})
		}
	}
	if len(rows) == 1 {
		return section{"KV events", [][]span{{{"none among the newest", dim}}}}
	}
	return section{"KV events", gridLines(rows, []bool{false, false, true})}
}

// drainSection shows how far a drain has come. It says safe only when the worker
// does.
func (m *model) drainSection(d *cluster.DrainStatus) section {
	g := m.glyphs
	now := slices.Index(cluster.DrainSteps, d.Step)
	ended := !d.EndedAt.IsZero() || d.Safe
	var lines [][]span
	for i, step := range cluster.DrainSteps {
		glyph, st := g.starting, dim
		switch {
		case ended || i < now:
			glyph, st = g.ready, good
		case i == now:
			glyph, st = g.draining, warn
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
		lines = append(lines, []span{{glyph + " ", st}, {text, plain}})
	}
	done := fmt.Sprintf("%d finished  %d moved  %d cancelled", d.Finished, d.Moved, d.Cancelled)
	lines = append(lines, fact("so far", done, plain))
	switch {
	case d.Safe:
		lines = append(lines, []span{{g.drained + " drained: safe to stop", good}})
	case d.Overdue:
		lines = append(lines, []span{{g.degraded + " the deadline passed with work left", bad}})
	case !d.Deadline.IsZero():
		lines = append(lines, fact("deadline", "in "+clockLeft(d.Deadline.Sub(m.at())), plain))
	}
	if len(d.Open) > 0 {
		rows := [][]span{titleRow("REQUEST OUT AGE")}
		for _, o := range d.Open[:min(len(d.Open), 10)] {
			rows = append(rows, []span{
				{clipMiddle(orUnknown(o.RequestID), 24, g.more), plain}, {commas(o.OutTokens), plain},
				{clockLeft(time.Duration(o.AgeMS) * time.Millisecond), plain},
			})
		}
		lines = append(lines, gridLines(rows, []bool{false, true, true})...)
	}
	return section{"drain", lines}
}
