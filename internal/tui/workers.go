package tui

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/table"
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
func stateLook(g *draw.Glyphs, s cluster.State) (string, draw.Style) {
	switch s {
	case cluster.StateReady:
		return g.Ready, draw.Good
	case cluster.StatePending, cluster.StateLoading, cluster.StateWarming:
		return g.Starting, draw.Plain
	case cluster.StateDraining:
		return g.Draining, draw.Warn
	case cluster.StateDrained, cluster.StateStopped:
		return g.Drained, draw.Dim
	case cluster.StateDegraded:
		return g.Degraded, draw.Warn
	case cluster.StateFailed, cluster.StateLost:
		return g.Lost, draw.Bad
	}
	return g.Unknown, draw.Dim
}

// stateSpans is the state. A worker that should be heard and is not is mute:
// what it does is not known until it speaks again or its lease ends.
func (m *model) stateSpans(w *cluster.Worker) []draw.Span {
	if w.Stale && (w.State.Serving() || w.State == cluster.StateDraining) {
		return []draw.Span{draw.Warn.Text(m.glyphs.Degraded + " mute " + cells.Age(m.at().Sub(w.HeardAt)))}
	}
	glyph, st := stateLook(m.glyphs, w.State)
	out := []draw.Span{st.Text(glyph + " " + stateWord(w))}
	if w.Stale && measured(w) {
		out = append(out, draw.Dim.Text(" "+cells.Age(m.at().Sub(w.HeardAt))+" old"))
	}
	return out
}

func roleStyle(r cluster.Role) draw.Style {
	switch r {
	case cluster.RolePrefill:
		return draw.Prefill
	case cluster.RoleDecode:
		return draw.Decode
	}
	return draw.Plain
}

// seqText is the number of running sequences, "+n" for those that wait.
func seqText(w *cluster.Worker) string {
	if !measured(w) {
		return cells.Unknown
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
		return cells.Unknown
	}
	return strconv.Itoa(w.Stats.KVUsed()) + "/" + strconv.Itoa(w.Stats.KVTotal)
}

// kvBar shows the used share of the KV blocks; the number stands beside it.
func (m *model) kvBar(w *cluster.Worker, width int) []draw.Span {
	if !measured(w) || w.Stats.KVTotal <= 0 {
		return nil
	}
	share := float64(w.Stats.KVUsed()) / float64(w.Stats.KVTotal)
	return draw.Bar(m.glyphs, share, width, kvStyle(share))
}

// kvStyle warns from 90 % and alarms from 97 % on: preemption is near.
func kvStyle(share float64) draw.Style {
	switch {
	case share >= 0.97:
		return draw.Bad
	case share >= 0.90:
		return draw.Warn
	}
	return draw.Good
}

// leaseSpans is the time a lease has left. A sign "~" marks what is remembered,
// not known.
func (m *model) leaseSpans(left, ttl time.Duration) []draw.Span {
	left -= m.countdown()
	text := cells.Seconds(max(left, 0))
	if m.freshness().kind == stale {
		return []draw.Span{draw.Dim.Text("~" + text)}
	}
	switch {
	case left <= 0:
		return []draw.Span{draw.Bad.Text(text)}
	case ttl > 0 && left < ttl/3:
		return []draw.Span{draw.Warn.Text(text)}
	}
	return []draw.Span{draw.Plain.Text(text)}
}

// workerColumns are the columns of pane 1. On narrow screens UP, LEASE, HIT% and
// DEVICE leave first, then the bar; name and state never do.
func (m *model) workerColumns() []table.Column {
	f := &m.known
	at := func(i int) *cluster.Worker { return &m.snap.Workers[i] }
	text := func(get func(i int) string) func(int, int) []draw.Span {
		return func(i, w int) []draw.Span {
			return []draw.Span{draw.Plain.Text(cells.Clip(cells.OrUnknown(get(i)), w, m.glyphs.More))}
		}
	}
	cols := []table.Column{
		{Title: "NAME", Width: max(f.nameW, 8), Cell: func(i, w int) []draw.Span {
			return []draw.Span{draw.Strong.Text(cells.ClipMiddle(at(i).Name, w, m.glyphs.More))}
		}},
		{Title: "ROLE", Width: 7, Leave: 10, Cell: func(i, _ int) []draw.Span {
			return []draw.Span{roleStyle(at(i).Role).Text(cells.OrUnknown(string(at(i).Role)))}
		}},
		{Title: "DEVICE", Width: cells.Clamp(f.deviceW, 6, 20), Leave: 7,
			Cell: text(func(i int) string { return f.devices[i] })},
		{Title: "STATE", Width: cells.Clamp(f.stateW, 10, 18), Least: 10, Most: cells.Clamp(f.stateW, 10, 40),
			Cell: func(i, _ int) []draw.Span { return m.stateSpans(at(i)) }},
		{Title: "SEQS", Width: cells.Clamp(f.seqW, 4, 9), Right: true, Leave: 12,
			Cell: func(i, _ int) []draw.Span { return []draw.Span{draw.Plain.Text(seqText(at(i)))} }},
		{Title: "KV BLOCKS", Width: 10, Least: 9, Most: 20, Leave: 8,
			Cell: func(i, w int) []draw.Span { return m.kvBar(at(i), w) }},
		{Title: "used/total", Alone: "KV BLOCKS", Width: max(f.kvW, 10), Right: true, Leave: 11,
			Cell: func(i, _ int) []draw.Span { return []draw.Span{draw.Plain.Text(kvNumber(at(i)))} }},
		{Title: "TOK/S", Width: 5, Right: true, Leave: 9,
			Cell: func(i, _ int) []draw.Span { return []draw.Span{draw.Plain.Text(cells.CompactOr(at(i).TokS))} }},
		{Title: "HIT%", Width: 4, Right: true, Leave: 6,
			Cell: func(i, _ int) []draw.Span { return []draw.Span{draw.Plain.Text(cells.Percent(at(i).HitRate))} }},
		{Title: "LEASE", Width: 6, Right: true, Leave: 5, Cell: func(i, _ int) []draw.Span {
			w := at(i)
			if w.Lease == nil {
				return []draw.Span{draw.Plain.Text(cells.Unknown)}
			}
			return m.leaseSpans(*w.Lease, time.Duration(w.LeaseTTLMS)*time.Millisecond)
		}},
		{Title: "UP", Width: 5, Right: true, Leave: 4, Cell: func(i, _ int) []draw.Span {
			if up := at(i).Uptime; up != nil {
				return []draw.Span{draw.Plain.Text(cells.Uptime(*up + m.since()))}
			}
			return []draw.Span{draw.Plain.Text(cells.Unknown)}
		}},
	}
	if m.width >= 120 {
		cols = append(cols,
			table.Column{Title: "MODEL", Width: cells.Clamp(f.modelW, 5, 24), Leave: 3, Cell: text(func(i int) string { return at(i).Model })},
			table.Column{Title: "VERSION", Width: cells.Clamp(f.versionW, 7, 12), Leave: 2, Cell: text(func(i int) string { return f.versions[i] })},
			table.Column{Title: "HOST", Width: cells.Clamp(f.hostW, 4, 20), Leave: 1, Cell: text(func(i int) string { return f.hosts[i] })})
	}
	return cols
}

// workerRows describes pane 1 to its list.
func (m *model) workerRows() table.Source {
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
	return table.Source{
		N:   len(m.snap.Workers),
		Key: func(i int) table.Key { return table.Key{Name: at(i).Name} },
		Text: func(i int) string {
			w := at(i)
			return strings.Join([]string{w.Name, string(w.Role), m.known.devices[i], string(w.State), w.Reason, w.Model, w.Node, m.known.hosts[i]}, " ")
		},
		Keys: []table.SortKey{
			{Id: "name", Num: func(i int) (float64, bool) { return float64(i), true }}, // snapshots come in that order
			{Id: "role", Text: func(i int) string { return string(at(i).Role) }},
			{Id: "device", Text: func(i int) string { return m.known.devices[i] }},
			{Id: "state", Text: func(i int) string { return string(at(i).State) }},
			{Id: "seqs", Desc: true, Num: num(func(w *cluster.Worker) float64 {
				return float64(w.Stats.Running + w.Stats.Waiting + w.Stats.RemoteWait)
			})},
			{Id: "kv", Desc: true, Num: num(func(w *cluster.Worker) float64 {
				if w.Stats.KVTotal <= 0 {
					return math.NaN()
				}
				return float64(w.Stats.KVUsed()) / float64(w.Stats.KVTotal)
			})},
			{Id: "tok", Desc: true, Num: ratio(func(w *cluster.Worker) *float64 { return w.TokS })},
			{Id: "hit", Desc: true, Num: ratio(func(w *cluster.Worker) *float64 { return w.HitRate })},
			{Id: "lease", Num: span(func(w *cluster.Worker) *time.Duration { return w.Lease })},
			{Id: "up", Desc: true, Num: span(func(w *cluster.Worker) *time.Duration { return w.Uptime })},
		},
	}
}

func (m *model) drawWorkers(a draw.Area) {
	m.drawTable(a, paneWorkers, m.workerColumns(), func(i int) bool { return m.snap.Workers[i].Stale },
		"no workers yet: dynctl up --decode 1")
}
