package tui

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// measured reports whether a worker ever told its figures; before that they are
// unknown, not zero.
func measured(w *cluster.Worker) bool { return !w.UpdatedAt.IsZero() }

// stateWord is the state as people read it; degraded workers say why instead.
func stateWord(w *cluster.Worker) string {
	switch {
	case w.State == "":
		return "unknown"
	case w.State == cluster.StateDegraded && w.Reason != "":
		return w.Reason
	case w.State == cluster.StateLoading && w.Progress > 0 && w.Progress <= 1:
		return fmt.Sprintf("loading %d%%", int(w.Progress*100))
	}
	return string(w.State)
}

// stateLook is the glyph and the color of a state.
func stateLook(g *glyphSet, s cluster.State) (string, style) {
	switch s {
	case cluster.StateReady:
		return g.ready, good
	case cluster.StatePending, cluster.StateLoading, cluster.StateWarming:
		return g.starting, plain
	case cluster.StateDraining:
		return g.draining, warn
	case cluster.StateDrained, cluster.StateStopped:
		return g.drained, dim
	case cluster.StateDegraded:
		return g.degraded, warn
	case cluster.StateFailed, cluster.StateLost:
		return g.lost, bad
	}
	return g.unknown, dim
}

// stateSpans is the state. A worker that should be heard and is not is mute:
// what it does is not known until it speaks again or its lease ends.
func (m *model) stateSpans(w *cluster.Worker) []span {
	if w.Stale && (w.State.Serving() || w.State == cluster.StateDraining) {
		return []span{{m.glyphs.degraded + " mute " + age(m.at().Sub(w.HeardAt)), warn}}
	}
	glyph, st := stateLook(m.glyphs, w.State)
	out := []span{{glyph + " " + stateWord(w), st}}
	if w.Stale && measured(w) {
		out = append(out, span{" " + age(m.at().Sub(w.HeardAt)) + " old", dim})
	}
	return out
}

func roleStyle(r cluster.Role) style {
	switch r {
	case cluster.RolePrefill:
		return prefill
	case cluster.RoleDecode:
		return decode
	}
	return plain
}

// seqText is the number of running sequences, "+n" for those that wait.
func seqText(w *cluster.Worker) string {
	if !measured(w) {
		return unknown
	}
	s := strconv.Itoa(w.Stats.Running)
	if wait := w.Stats.Waiting + w.Stats.RemoteWait; wait > 0 {
		s += "+" + strconv.Itoa(wait)
	}
	return s
}

// kvNumber is used/total KV blocks.
func kvNumber(w *cluster.Worker) string {
	if !measured(w) || w.Stats.KVTotal <= 0 {
		return unknown
	}
	return strconv.Itoa(w.Stats.KVUsed()) + "/" + strconv.Itoa(w.Stats.KVTotal)
}

// kvBar shows the used share of the KV blocks; the number stands beside it.
func (m *model) kvBar(w *cluster.Worker, width int) []span {
	if !measured(w) || w.Stats.KVTotal <= 0 {
		return nil
	}
	share := float64(w.Stats.KVUsed()) / float64(w.Stats.KVTotal)
	return bar(m.glyphs, share, width, kvStyle(share))
}

// kvStyle warns from 90 % and alarms from 97 % on: preemption is near.
func kvStyle(share float64) style {
	switch {
	case share >= 0.97:
		return bad
	case share >= 0.90:
		return warn
	}
	return good
}

// leaseSpans is the time a lease has left. A sign "~" marks what is remembered,
// not known.
func (m *model) leaseSpans(left, ttl time.Duration) []span {
	left -= m.countdown()
	text := seconds(max(left, 0))
	if m.freshness().kind == stale {
		return []span{{"~" + text, dim}}
	}
	switch {
	case left <= 0:
		return []span{{text, bad}}
	case ttl > 0 && left < ttl/3:
		return []span{{text, warn}}
	}
	return []span{{text, plain}}
}

// workerColumns are the columns of pane 1. On narrow screens UP, LEASE, HIT% and
// DEVICE leave first, then the bar; name and state never do.
func (m *model) workerColumns() []column {
	f := &m.known
	at := func(i int) *cluster.Worker { return &m.snap.Workers[i] }
	text := func(get func(i int) string) func(int, int) []span {
		return func(i, w int) []span { return []span{{clip(orUnknown(get(i)), w, m.glyphs.more), plain}} }
	}
	cols := []column{
		{title: "NAME", width: max(f.nameW, 8), cell: func(i, w int) []span {
			return []span{{clipMiddle(at(i).Name, w, m.glyphs.more), strong}}
		}},
		{title: "ROLE", width: 7, leave: 10, cell: func(i, _ int) []span {
			return []span{{orUnknown(string(at(i).Role)), roleStyle(at(i).Role)}}
		}},
		{title: "DEVICE", width: clamp(f.deviceW, 6, 20), leave: 7,
			cell: text(func(i int) string { return f.devices[i] })},
		{title: "STATE", width: clamp(f.stateW, 10, 18), least: 10, most: clamp(f.stateW, 10, 40),
			cell: func(i, _ int) []span { return m.stateSpans(at(i)) }},
		{title: "SEQS", width: clamp(f.seqW, 4, 9), right: true, leave: 12,
			cell: func(i, _ int) []span { return []span{{seqText(at(i)), plain}} }},
		{title: "KV BLOCKS", width: 10, least: 9, most: 20, leave: 8,
			cell: func(i, w int) []span { return m.kvBar(at(i), w) }},
		{title: "used/total", alone: "KV BLOCKS", width: max(f.kvW, 10), right: true, leave: 11,
			cell: func(i, _ int) []span { return []span{{kvNumber(at(i)), plain}} }},
		{title: "TOK/S", width: 5, right: true, leave: 9,
			cell: func(i, _ int) []span { return []span{{compactOr(at(i).TokS), plain}} }},
		{title: "HIT%", width: 4, right: true, leave: 6,
			cell: func(i, _ int) []span { return []span{{percent(at(i).HitRate), plain}} }},
		{title: "LEASE", width: 6, right: true, leave: 5, cell: func(i, _ int) []span {
			w := at(i)
			if w.Lease == nil {
				return []span{{unknown, plain}}
			}
			return m.leaseSpans(*w.Lease, time.Duration(w.LeaseTTLMS)*time.Millisecond)
		}},
		{title: "UP", width: 5, right: true, leave: 4, cell: func(i, _ int) []span {
			if up := at(i).Uptime; up != nil {
				return []span{{uptime(*up + m.since()), plain}}
			}
			return []span{{unknown, plain}}
		}},
	}
	if m.width >= 120 {
		cols = append(cols,
			column{title: "MODEL", width: clamp(f.modelW, 5, 24), leave: 3, cell: text(func(i int) string { return at(i).Model })},
			column{title: "VERSION", width: clamp(f.versionW, 7, 12), leave: 2, cell: text(func(i int) string { return f.versions[i] })},
			column{title: "HOST", width: clamp(f.hostW, 4, 20), leave: 1, cell: text(func(i int) string { return f.hosts[i] })})
	}
	return cols
}

// workerRows describes pane 1 to its list.
func (m *model) workerRows() rowSource {
	at := func(i int) *cluster.Worker { return &m.snap.Workers[i] }
	num := func(get func(w *cluster.Worker) float64) func(int) (float64, bool) {
		return func(i int) (float64, bool) { return get(at(i)), measured(at(i)) }
	}
	ratio := func(get func(w *cluster.Worker) *float64) func(int) (float64, bool) {
		return func(i int) (float64, bool) {
			if p := get(at(i)); p != nil {
				return *p, true
			}
			return 0, false
		}
	}
	span := func(get func(w *cluster.Worker) *time.Duration) func(int) (float64, bool) {
		return func(i int) (float64, bool) {
			if p := get(at(i)); p != nil {
				return float64(*p), true
			}
			return 0, false
		}
	}
	return rowSource{
		n:   len(m.snap.Workers),
		key: func(i int) rowKey { return rowKey{name: at(i).Name} },
		text: func(i int) string {
			w := at(i)
			return strings.Join([]string{w.Name, string(w.Role), m.known.devices[i], string(w.State), w.Reason, w.Model, w.Node, m.known.hosts[i]}, " ")
		},
		keys: []sortKey{
			{id: "name", num: func(i int) (float64, bool) { return float64(i), true }}, // snapshots come in that order
			{id: "role", text: func(i int) string { return string(at(i).Role) }},
			{id: "device", text: func(i int) string { return m.known.devices[i] }},
			{id: "state", text: func(i int) string { return string(at(i).State) }},
			{id: "seqs", desc: true, num: num(func(w *cluster.Worker) float64 {
				return float64(w.Stats.Running + w.Stats.Waiting + w.Stats.RemoteWait)
			})},
			{id: "kv", desc: true, num: num(func(w *cluster.Worker) float64 {
				if w.Stats.KVTotal <= 0 {
					return math.NaN()
				}
				return float64(w.Stats.KVUsed()) / float64(w.Stats.KVTotal)
			})},
			{id: "tok", desc: true, num: ratio(func(w *cluster.Worker) *float64 { return w.TokS })},
			{id: "hit", desc: true, num: ratio(func(w *cluster.Worker) *float64 { return w.HitRate })},
			{id: "lease", num: span(func(w *cluster.Worker) *time.Duration { return w.Lease })},
			{id: "up", desc: true, num: span(func(w *cluster.Worker) *time.Duration { return w.Uptime })},
		},
	}
}

func (m *model) drawWorkers(a area) {
	m.drawTable(a, paneWorkers, m.workerColumns(), func(i int) bool { return m.snap.Workers[i].Stale },
		"no workers yet: dynctl up --decode 1")
}
