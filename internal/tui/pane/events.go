package pane

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/detail"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/moment"
	"github.com/dynctl/dynctl/internal/tui/plain"
	"github.com/dynctl/dynctl/internal/tui/table"
)

// wholeHash is the number of digits of a block's hash.
const wholeHash = 16

// events are the pane of the newest KV events.
type events struct{ list }

// Events returns the pane of the KV events.
func Events(m *moment.Moment) Pane {
	p := &events{list{m: m, none: "no KV events yet"}}
	p.columns, p.summary, p.rows = p.cols, p.sums, table.NewList(p.source())
	return p
}

func (p *events) at(i int) *cluster.KVEvent { return &p.m.Snap.Events[i] }

func (p *events) cols() []table.Column {
	at, workerW, prefixW := p.at, 8, 0
	for i := range p.m.Snap.Events {
		workerW, prefixW = max(workerW, cells.Width(at(i).Worker)), max(prefixW, cells.Width(p.m.EventPrefix(at(i), wholeHash)))
	}
	return []table.Column{
		{Title: "TIME", Width: 9, Leave: 2, Cell: func(i, _ int) []draw.Span { return []draw.Span{draw.Dim.Text(p.m.TimeOfDay(at(i).Time))} }},
		{Title: "WORKER", Width: workerW, Cell: func(i, w int) []draw.Span {
			return []draw.Span{draw.Strong.Text(cells.ClipMiddle(cells.OrUnknown(at(i).Worker), w, p.m.Glyphs.More))}
		}},
		{Title: "EVENT", Width: 7, Leave: 4, Cell: func(i, _ int) []draw.Span {
			return []draw.Span{moment.EventStyle(at(i).Kind).Text(cells.OrUnknown(string(at(i).Kind)))}
		}},
		{Title: "BLOCKS", Width: 6, Right: true, Leave: 5, Cell: func(i, _ int) []draw.Span { return []draw.Span{draw.Plain.Text(moment.EventBlocks(at(i)))} }},
		{Title: "PREFIX", Width: 10, Full: prefixW, Leave: 3, Cell: func(i, w int) []draw.Span {
			digits := wholeHash
			if w < prefixW {
				digits = 4
			}
			return []draw.Span{draw.Dim.Text(p.m.EventPrefix(at(i), digits))}
		}},
	}
}

func (p *events) source() table.Source {
	at := p.at
	return table.Source{
		N:      func() int { return len(p.m.Snap.Events) },
		Newest: true,
		Key:    func(i int) table.Key { return table.Key{Name: at(i).Worker, N: at(i).EventID} },
		Text: func(i int) string {
			return strings.Join([]string{at(i).Worker, string(at(i).Kind), p.m.EventPrefix(at(i), wholeHash)}, " ")
		},
	}
}

// sums shows how many indexes miss events, and the gaps, lag and rate of arriving events.
func (p *events) sums(width, _ int) [][]draw.Span {
	lag, rate := cells.Unknown, cells.Unknown
	if p.m.Snap.KVEventLag != nil {
		if lag = cells.RoundTrip(*p.m.Snap.KVEventLag); lag == "" {
			lag = "0ms"
		}
	}
	if p.m.Snap.KVEventRate != nil {
		rate = cells.Compact(*p.m.Snap.KVEventRate)
	}
	gaps := draw.Plain
	if p.m.Snap.KVEventGaps > 0 {
		gaps = draw.Warn
	}
	parts := []draw.Part{
		{Spans: []draw.Span{draw.Dim.Text("gaps "), gaps.Text(cells.Commas(p.m.Snap.KVEventGaps))}},
		figure(1, "lag", lag),
		{Leave: 2, Spans: []draw.Span{draw.Plain.Text(rate), draw.Dim.Text(" events/s")}},
	}
	if late := p.m.LateCaches(); late > 0 {
		parts = append([]draw.Part{{Spans: []draw.Span{draw.Warn.Text(fmt.Sprintf("%d out of date", late))}}}, parts...)
	}
	return [][]draw.Span{figures(width, parts...)}
}

func (p *events) Subject() detail.Subject {
	row, ok := p.rows.Selected()
	if !ok {
		return p.subject(chooseWorker)
	}
	e := p.at(row)
	s := detail.Subject{Title: "KV event", Value: e, NoWorker: chooseWorker}
	if w, _ := p.m.Worker(e.Worker); w != nil {
		s.Open = detail.Worker(p.m, e.Worker)
	} else {
		s.NoOpen = cells.OrUnknown(e.Worker) + " is not a worker of the list"
	}
	return s
}

func (p *events) Table(o plain.Options) plain.Table {
	t := plain.New("events", "TIME", "WORKER", "EVENT", ">ID", ">BLOCKS", "PREFIX")
	for i := range p.m.Snap.Events {
		e := p.at(i)
		t.Add(o.Time(e.Time), cells.OrUnknown(e.Worker), cells.OrUnknown(string(e.Kind)), strconv.FormatUint(e.EventID, 10), moment.EventBlocks(e), p.m.EventPrefix(e, 4))
	}
	return t
}
