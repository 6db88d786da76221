package pane

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/detail"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/moment"
	"github.com/dynctl/dynctl/internal/tui/table"
)

// workers are the pane of the workers: the only one that stays where two have room.
type workers struct{ list }

// Workers returns the pane of the workers.
func Workers(m *moment.Moment) Pane {
	p := &workers{list{m: m, none: "no workers yet: dynctl up --decode 1", counts: true, invites: true}}
	p.columns, p.rows = p.cols, table.NewList(p.source())
	p.old = func(i int) bool { return p.at(i).Stale }
	return p
}

func (p *workers) at(i int) *cluster.Worker { return &p.m.Snap.Workers[i] }

// cols are the columns. On narrow screens UP, FALSE%, LEASE, PREFIX% and DEVICE leave first, then
// the bar; name and state never do.
func (p *workers) cols() []table.Column {
	f, at, wide := &p.m.Known, p.at, p.widths()
	text := func(get func(i int) string) func(int, int) []draw.Span {
		return func(i, w int) []draw.Span {
			return []draw.Span{draw.Plain.Text(cells.Clip(cells.OrUnknown(get(i)), w, p.m.Glyphs.More))}
		}
	}
	cols := []table.Column{
		{Title: "NAME", Width: max(wide.name, 8), Cell: func(i, w int) []draw.Span {
			return []draw.Span{draw.Strong.Text(cells.ClipMiddle(at(i).Name, w, p.m.Glyphs.More))}
		}},
		{Title: "ROLE", Width: 7, Leave: 11, Cell: func(i, _ int) []draw.Span {
			return []draw.Span{moment.RoleStyle(at(i).Role).Text(cells.OrUnknown(string(at(i).Role)))}
		}},
		{Title: "DEVICE", Width: cells.Clamp(wide.device, 6, 20), Full: wide.device, Leave: 8,
			Cell: text(func(i int) string { return f.Devices[i] })},
		{Title: "STATE", Width: cells.Clamp(wide.state, 10, max(18, wide.leastState)), Least: wide.leastState, Full: wide.state,
			Cell: func(i, w int) []draw.Span {
				if s := p.m.Ends(at(i)); draw.Width(s) <= w {
					return s
				}
				return p.m.State(at(i))
			}},
		{Title: "SEQS", Width: cells.Clamp(wide.seqs, 4, 9), Right: true, Leave: 13,
			Cell: func(i, _ int) []draw.Span { return []draw.Span{draw.Plain.Text(moment.Sequences(at(i)))} }},
		{Title: "KV BLOCKS", Width: 10, Least: 9, Most: 20, Leave: 9,
			Cell: func(i, w int) []draw.Span { return p.m.KVBar(at(i), w) }},
		{Title: "used/total", Alone: "KV BLOCKS", Width: max(wide.kv, 10), Right: true, Leave: 12,
			Cell: func(i, _ int) []draw.Span { return []draw.Span{draw.Plain.Text(moment.KVText(at(i)))} }},
		{Title: "TOK/S", Width: max(wide.speed, 5), Right: true, Leave: 10,
			Cell: func(i, _ int) []draw.Span { return []draw.Span{draw.Plain.Text(moment.Speed(at(i)))} }},
		{Title: "PREFIX%", Short: "PREFIX", Width: 7, Least: 6, Right: true, Leave: 7, Help: "share of prompt tokens found in the prefix cache",
			Cell: func(i, _ int) []draw.Span { return []draw.Span{draw.Plain.Text(cells.Percent(at(i).HitRate))} }},
		{Title: "LEASE", Width: 6, Right: true, Leave: 6, Cell: func(i, _ int) []draw.Span {
			w := at(i)
			if w.Lease == nil {
				return []draw.Span{draw.Plain.Text(cells.Unknown)}
			}
			return p.m.LeaseLeft(*w.Lease, time.Duration(w.LeaseTTLMS)*time.Millisecond)
		}},
		{Title: "UP", Width: 5, Right: true, Leave: 4, Cell: func(i, _ int) []draw.Span {
			if up := at(i).Uptime; up != nil {
				return []draw.Span{draw.Plain.Text(cells.Uptime(*up + p.m.Age))}
			}
			return []draw.Span{draw.Plain.Text(cells.Unknown)}
		}},
	}
	if p.m.Known.Accuracies {
		at := slices.IndexFunc(cols, func(c table.Column) bool { return c.Title == "LEASE" })
		cols = slices.Insert(cols, at, table.Column{Title: "FALSE%", Short: "FALSE", Width: 6, Least: 5, Right: true, Leave: 5,
			Help: "share of the blocks predicted in the last minute that were not in the cache", Cell: p.falseShare})
	}
	if p.m.Width >= 120 {
		cols = append(cols,
			table.Column{Title: "MODEL", Width: cells.Clamp(wide.model, 5, 24), Full: wide.model, Leave: 3, Cell: text(func(i int) string { return at(i).Model })},
			table.Column{Title: "VERSION", Width: cells.Clamp(wide.version, 7, 12), Full: wide.version, Leave: 2, Cell: text(func(i int) string { return f.Versions[i] })},
			table.Column{Title: "HOST", Width: cells.Clamp(wide.host, 4, 20), Full: wide.host, Leave: 1, Cell: text(func(i int) string { return f.Hosts[i] })})
	}
	return cols
}

// falseShare is the share of predicted blocks that a worker did not find.
func (p *workers) falseShare(i, _ int) []draw.Span {
	st := draw.Plain
	if c := p.m.Cache(p.at(i)); c != nil && c.OftenFalse() {
		st = draw.Warn
	}
	return []draw.Span{st.Text(cells.Percent(p.m.FalseShare(p.at(i))))}
}

// widths are the widest cells of some columns.
type widths struct{ name, device, state, leastState, seqs, kv, speed, model, host, version int }

func (p *workers) widths() (w widths) {
	f := &p.m.Known
	w.leastState = 10
	for i := range p.m.Snap.Workers {
		o := p.at(i)
		w.name = max(w.name, cells.Width(o.Name))
		w.device = max(w.device, cells.Width(f.Devices[i]))
		w.state = max(w.state, draw.Width(p.m.Ends(o)))
		if o.Silent() { // room for how long, and until when
			w.leastState = len("! unknown 59s")
			if p.m.Width >= 80 && o.Lease != nil {
				w.leastState = len("! unknown 59s, lease 10s")
			}
			w.state = max(w.state, w.leastState)
		}
		w.kv = max(w.kv, cells.Width(moment.KVText(o)))
		w.speed = max(w.speed, cells.Width(moment.Speed(o)))
		w.seqs = max(w.seqs, cells.Width(moment.Sequences(o)))
		w.model = max(w.model, cells.Width(o.Model))
		w.host = max(w.host, cells.Width(f.Hosts[i]))
		w.version = max(w.version, cells.Width(f.Versions[i]))
	}
	return w
}

func (p *workers) source() table.Source {
	at := p.at
	num := func(get func(w *cluster.Worker) float64) func(int) (float64, bool) {
		return func(i int) (float64, bool) { return get(at(i)), moment.Measured(at(i)) }
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
		N:   func() int { return len(p.m.Snap.Workers) },
		Key: func(i int) table.Key { return table.Key{Name: at(i).Name} },
		Text: func(i int) string {
			w := at(i)
			return strings.Join([]string{w.Name, string(w.Role), p.m.Known.Devices[i], string(w.State), w.Reason, w.Model, w.Node, p.m.Known.Hosts[i]}, " ")
		},
		Keys: []table.SortKey{
			{ID: "name", Num: func(i int) (float64, bool) { return float64(i), true }}, // snapshots come in that order
			{ID: "role", Text: func(i int) string { return string(at(i).Role) }},
			{ID: "device", Text: func(i int) string { return p.m.Known.Devices[i] }},
			{ID: "state", Text: func(i int) string { return string(at(i).State) }},
			{ID: "seqs", Desc: true, Num: num(func(w *cluster.Worker) float64 {
				return float64(w.Stats.Running + w.Stats.Waiting + w.Stats.RemoteWait)
			})},
			{ID: "kv", Desc: true, Num: num(func(w *cluster.Worker) float64 {
				if w.Stats.KVTotal <= 0 {
					return math.NaN()
				}
				return float64(w.Stats.KVUsed()) / float64(w.Stats.KVTotal)
			})},
			{ID: "tok", Desc: true, Num: ratio(func(w *cluster.Worker) *float64 { return w.TokS })},
			{ID: "hit", Desc: true, Num: ratio(func(w *cluster.Worker) *float64 { return w.HitRate })},
			{ID: "false", Desc: true, Num: ratio(p.m.FalseShare)},
			{ID: "lease", Num: span(func(w *cluster.Worker) *time.Duration { return w.Lease })},
			{ID: "up", Desc: true, Num: span(func(w *cluster.Worker) *time.Duration { return w.Uptime })},
		},
	}
}

func (p *workers) Subject() detail.Subject {
	row, ok := p.rows.Selected()
	if !ok {
		return p.subject("no worker under the cursor")
	}
	w := p.at(row)
	return detail.Subject{Title: w.Name, Value: w, Worker: w.Name, Open: detail.Worker(p.m, w.Name)}
}
