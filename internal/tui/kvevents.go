package tui

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/table"
)

// timeOfDay is minutes, seconds and milliseconds: the hour is in the header.
func (m *model) timeOfDay(t time.Time) string {
	if t.IsZero() {
		return cells.Unknown
	}
	return t.In(m.opts.Location).Format("04:05.000")
}

// eventBlocks is the signed number of blocks an event moved.
func eventBlocks(e *cluster.KVEvent) string {
	if e.Kind == cluster.KVStored {
		return "+" + strconv.Itoa(e.Count)
	}
	if e.Count == 0 {
		return "0"
	}
	return "-" + strconv.Itoa(e.Count)
}

// eventPrefix says which blocks: the last block's hash and the depth it reaches,
// or why blocks went.
func (m *model) eventPrefix(e *cluster.KVEvent) string {
	hash := func(h uint64) string {
		return fmt.Sprintf("%04x", h>>48) + m.glyphs.More
	}
	switch {
	case e.Kind == cluster.KVCleared:
		return strings.TrimSpace("all " + e.Reason)
	case e.Kind == cluster.KVStored && len(e.Stored) > 0:
		return fmt.Sprintf("%s d%d", hash(e.Stored[len(e.Stored)-1].BlockHash), e.StartPosition+e.Count)
	case e.Kind == cluster.KVStored:
		return fmt.Sprintf("d%d", e.StartPosition+e.Count)
	case len(e.Removed) > 0:
		return strings.TrimSpace(hash(e.Removed[0]) + " " + e.Reason)
	}
	return cells.OrUnknown(e.Reason)
}

func eventStyle(k cluster.KVEventKind) draw.Style {
	switch k {
	case cluster.KVStored:
		return draw.Good
	case cluster.KVRemoved:
		return draw.Plain
	case cluster.KVCleared:
		return draw.Warn
	}
	return draw.Dim
}

// eventColumns are the columns of pane 5.
func (m *model) eventColumns() []table.Column {
	at := func(i int) *cluster.KVEvent { return &m.snap.Events[i] }
	return []table.Column{
		{Title: "TIME", Width: 9, Leave: 2, Cell: func(i, _ int) []draw.Span { return []draw.Span{draw.Dim.Text(m.timeOfDay(at(i).Time))} }},
		{Title: "WORKER", Width: max(m.known.eventW, 8), Cell: func(i, w int) []draw.Span {
			return []draw.Span{draw.Strong.Text(cells.ClipMiddle(cells.OrUnknown(at(i).Worker), w, m.glyphs.More))}
		}},
		{Title: "EVENT", Width: 7, Leave: 4, Cell: func(i, _ int) []draw.Span {
			return []draw.Span{eventStyle(at(i).Kind).Text(cells.OrUnknown(string(at(i).Kind)))}
		}},
		{Title: "BLOCKS", Width: 6, Right: true, Leave: 5, Cell: func(i, _ int) []draw.Span { return []draw.Span{draw.Plain.Text(eventBlocks(at(i)))} }},
		{Title: "PREFIX", Width: 10, Most: 24, Leave: 3, Cell: func(i, _ int) []draw.Span { return []draw.Span{draw.Dim.Text(m.eventPrefix(at(i)))} }},
	}
}

// eventRows describes pane 5 to its list.
func (m *model) eventRows() table.Source {
	at := func(i int) *cluster.KVEvent { return &m.snap.Events[i] }
	return table.Source{
		N:      len(m.snap.Events),
		Newest: true,
		Key:    func(i int) table.Key { return table.Key{Name: at(i).Worker, N: at(i).EventID} },
		Text: func(i int) string {
			return strings.Join([]string{at(i).Worker, string(at(i).Kind), m.eventPrefix(at(i))}, " ")
		},
	}
}

func (m *model) drawEvents(a draw.Area) {
	m.drawTable(a.Sub(draw.Rect{X: 0, Y: 0, W: a.W(), H: a.H() - 1}), paneEvents, m.eventColumns(), nil, "no KV events yet")
	lag, rate := cells.Unknown, cells.Unknown
	if m.snap.KVEventLag != nil {
		if lag = cells.RoundTrip(*m.snap.KVEventLag); lag == "" {
			lag = "0ms"
		}
	}
	if m.snap.KVEventRate != nil {
		rate = cells.Compact(*m.snap.KVEventRate)
	}
	gaps := draw.Plain
	if m.snap.KVEventGaps > 0 {
		gaps = draw.Warn
	}
	a.Spans(0, a.H()-1, a.W(), []draw.Span{
		draw.Dim.Text("gaps "), gaps.Text(cells.Commas(m.snap.KVEventGaps)), draw.Dim.Text("   lag "), draw.Plain.Text(lag), draw.Dim.Text("   "), draw.Plain.Text(rate), draw.Dim.Text(" events/s"),
	})
}
