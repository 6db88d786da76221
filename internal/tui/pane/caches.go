package pane

import (
	"fmt"
	"slices"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/detail"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/moment"
	"github.com/dynctl/dynctl/internal/tui/table"
)

// caches are the pane of the workers' KV caches, as the frontends know them.
type caches struct{ list }

// Caches returns the pane of the KV caches.
func Caches(m *moment.Moment) Pane {
	p := &caches{list{m: m, none: "no KV caches are known", counts: true}}
	p.columns, p.summary, p.rows = p.cols, p.sums, table.NewList(p.source())
	return p
}

func (p *caches) all() []cluster.KVCache {
	if p.m.Snap.Caches == nil {
		return nil
	}
	return p.m.Snap.Caches.Workers
}

func (p *caches) at(i int) *cluster.KVCache { return &p.all()[i] }

// indexed prints a number of the index, which may not be known.
func indexed[T int | uint64](get func(x *cluster.KVIndexWorker) T) func(c *cluster.KVCache) string {
	return func(c *cluster.KVCache) string {
		if c.Index == nil {
			return cells.Unknown
		}
		return cells.Commas(get(c.Index))
	}
}

// recently prints a number of the recent accuracy, which may not be known.
func recently(get func(a *cluster.KVAccuracy) uint64) func(c *cluster.KVCache) string {
	return func(c *cluster.KVCache) string {
		if c.Index == nil || c.Index.Recent == nil {
			return cells.Unknown
		}
		return cells.Commas(get(c.Index.Recent))
	}
}

// ago prints the time since the last event of a cache.
func (p *caches) ago(c *cluster.KVCache) string {
	if c.EventAt.IsZero() {
		return cells.Unknown
	}
	return cells.Age(p.m.At().Sub(c.EventAt))
}

func (p *caches) cols() []table.Column {
	number := func(title string, width, leave int, get func(c *cluster.KVCache) string, help string) table.Column {
		full := widest(len(p.all()), func(i int) string { return get(p.at(i)) })
		return table.Column{Title: title, Width: width, Full: full, Right: true, Leave: leave, Help: help, Cell: func(i, _ int) []draw.Span { return []draw.Span{draw.Plain.Text(get(p.at(i)))} }}
	}
	nameW := 8
	for i := range p.all() {
		nameW = max(nameW, cells.Width(p.at(i).Worker))
	}
	return []table.Column{
		{Title: "WORKER", Width: nameW, Cell: func(i, w int) []draw.Span {
			return []draw.Span{draw.Strong.Text(cells.ClipMiddle(p.at(i).Worker, w, p.m.Glyphs.More))}
		}},
		number("DEVICE", 7, 11, indexed(func(x *cluster.KVIndexWorker) int { return x.Device }), "blocks in the index that are in device memory"),
		number("HOST", 6, 5, indexed(func(x *cluster.KVIndexWorker) int { return x.Host }), "blocks in the index that are in host memory"),
		number("DISK", 6, 4, indexed(func(x *cluster.KVIndexWorker) int { return x.Disk }), "blocks in the index that are on disk"),
		{Title: "EPOCH", Width: 6, Full: 16, Leave: 1, Help: "number of the cache; another one means that it began empty", Cell: func(i, w int) []draw.Span {
			return []draw.Span{draw.Dim.Text(cells.ClipMiddle(moment.CacheEpoch(p.at(i)), w, p.m.Glyphs.More))}
		}},
		number("EVENTS/S", 8, 8, func(c *cluster.KVCache) string { return cells.CompactOr(c.EventRate) }, "KV events of the worker between the last two samples"),
		number("LAST", 5, 7, p.ago, "time since the last KV event"),
		number("GAPS", 5, 6, indexed(func(x *cluster.KVIndexWorker) uint64 { return x.GapsTotal }), "events that did not reach a frontend and were asked for"),
		{Title: "OUT OF DATE", Short: "LATE", Width: 11, Least: 5, Right: true, Leave: 9, Help: "how long events have been missing", Cell: func(i, _ int) []draw.Span {
			return []draw.Span{p.late(p.at(i))}
		}},
		number("PREDICTED", 9, 2, recently(func(a *cluster.KVAccuracy) uint64 { return a.Predicted }), "blocks that the index promised in the last minute"),
		number("FALSE", 6, 3, recently(func(a *cluster.KVAccuracy) uint64 { return a.False }), "blocks among them that were not in the cache"),
		{Title: "FALSE%", Width: 6, Right: true, Leave: 10, Cell: func(i, _ int) []draw.Span {
			st := draw.Plain
			if p.at(i).OftenFalse() {
				st = draw.Warn
			}
			return []draw.Span{st.Text(cells.Percent(moment.CacheFalseShare(p.at(i))))}
		}},
	}
}

// late is for how long events of a cache are missing; "no" if none are.
func (p *caches) late(c *cluster.KVCache) draw.Span {
	switch d := p.m.OutOfDate(c); {
	case c.Index == nil || c.Approximate:
		return draw.Plain.Text(cells.Unknown)
	case d > 0:
		return draw.Warn.Text(cells.Age(d))
	}
	return draw.Plain.Text("no")
}

func (p *caches) source() table.Source {
	known := func(get func(x *cluster.KVIndexWorker) float64) func(int) (float64, bool) {
		return func(i int) (float64, bool) {
			if x := p.at(i).Index; x != nil {
				return get(x), true
			}
			return 0, false
		}
	}
	ratio := func(get func(c *cluster.KVCache) *float64) func(int) (float64, bool) {
		return func(i int) (float64, bool) {
			if v := get(p.at(i)); v != nil {
				return *v, true
			}
			return 0, false
		}
	}
	return table.Source{
		N:    func() int { return len(p.all()) },
		Key:  func(i int) table.Key { return table.Key{Name: p.at(i).Worker, N: uint64(p.at(i).InstanceID)} },
		Text: func(i int) string { return p.at(i).Worker },
		Keys: []table.SortKey{
			{ID: "name", Num: func(i int) (float64, bool) { return float64(i), true }}, // snapshots come in that order
			{ID: "blocks", Desc: true, Num: known(func(x *cluster.KVIndexWorker) float64 { return float64(x.Device + x.Host + x.Disk) })},
			{ID: "events", Desc: true, Num: ratio(func(c *cluster.KVCache) *float64 { return c.EventRate })},
			{ID: "gaps", Desc: true, Num: known(func(x *cluster.KVIndexWorker) float64 { return float64(x.GapsTotal) })},
			{ID: "late", Desc: true, Num: func(i int) (float64, bool) { return float64(p.m.OutOfDate(p.at(i))), p.at(i).Index != nil }},
			{ID: "false", Desc: true, Num: ratio(moment.CacheFalseShare)},
		},
	}
}

// sums says who told it, and when.
func (p *caches) sums(int, int) [][]draw.Span {
	c := p.m.Snap.Caches
	switch {
	case c == nil:
		return [][]draw.Span{{draw.Dim.Text("no frontend was asked")}}
	case c.At.IsZero() && c.Error == "":
		return [][]draw.Span{{draw.Dim.Text("no frontend has answered yet")}}
	case c.At.IsZero():
		return [][]draw.Span{{draw.Warn.Text(c.Error)}}
	}
	by := "1 frontend"
	if c.Frontends != 1 {
		by = fmt.Sprintf("%d frontends", c.Frontends)
	}
	line := []draw.Span{draw.Dim.Text("index of "), draw.Plain.Text(by), draw.Dim.Text(", " + cells.Age(p.m.At().Sub(c.At)) + " ago")}
	if c.Error != "" {
		line = append(line, draw.Warn.Text("   "+c.Error))
	}
	if slices.ContainsFunc(c.Workers, func(k cluster.KVCache) bool { return k.Approximate }) {
		line = append(line, draw.Dim.Text("   approximate: by what was routed, without KV events"))
	}
	return [][]draw.Span{line}
}

func (p *caches) Subject() detail.Subject {
	row, ok := p.rows.Selected()
	if !ok {
		return p.subject(chooseWorker)
	}
	c := p.at(row)
	s := detail.Subject{Title: "KV cache of " + c.Worker, Value: c, Worker: c.Worker}
	if w, _ := p.m.Worker(c.Worker); w != nil {
		s.Open = detail.Worker(p.m, c.Worker)
	} else {
		s.NoOpen = c.Worker + " is not a worker of the list"
	}
	return s
}
