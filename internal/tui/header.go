package tui

import (
	"cmp"
	"time"

	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/moment"
)

// headerParts are the left side of the header, for the panes.
func headerParts(m *moment.Moment, recording string) []draw.Part {
	f, more := &m.Snap.Fresh, m.Glyphs.More
	store := func(name string, ok bool, d time.Duration) []draw.Span {
		if !m.Have {
			return []draw.Span{draw.Dim.Text(name + " "), draw.Plain.Text(cells.Unknown)}
		}
		if !ok {
			return []draw.Span{draw.Dim.Text(name + " "), draw.Bad.Text("down")}
		}
		text := "ok"
		if r := cells.RoundTrip(d); r != "" {
			text += " " + r
		}
		return []draw.Span{draw.Dim.Text(name + " "), draw.Good.Text(text)}
	}
	cluster, model := cells.OrUnknown(m.Snap.Cluster), cells.OrUnknown(m.Known.Model)
	parts := []draw.Part{
		{Spans: []draw.Span{draw.Strong.Text("dynctl top")}, Leave: 6},
		{Spans: []draw.Span{draw.Dim.Text("cluster "), draw.Strong.Text(cells.Clip(cluster, 24, more))}, Leave: 5},
		{Spans: []draw.Span{draw.Dim.Text("model "), draw.Plain.Text(cells.Clip(model, 24, more))}, Leave: 2},
		{Spans: store(cmp.Or(f.Store, "etcd"), f.EtcdOK, f.EtcdRTT), Leave: 4},
		{Spans: store("nats", f.NATSOK, f.NATSRTT), Leave: 3},
	}
	if recording != "" {
		name := cells.ClipMiddle(recording, 24, more)
		parts = append(parts, draw.Part{Spans: []draw.Span{draw.Bad.Text("REC "), draw.Plain.Text(name)}, Leave: 7})
	}
	return parts
}

// drawHeader writes what this is, how fresh it is, and the time. The freshness
// never leaves; the clock leaves before the first part does.
func drawHeader(a draw.Area, parts []draw.Part, fr freshness, clock string) {
	all := draw.FitParts(append(parts,
		draw.Part{Spans: []draw.Span{fr.st.Text(fr.text)}},
		draw.Part{Spans: []draw.Span{draw.Dim.Text(clock)}, Leave: 1},
	), a.W(), 1, 2)
	right, gap := a.W(), 1
	if last := all[len(all)-1]; last.Leave == 1 {
		right, gap = a.W()-last.Width()-1, 4
		a.Spans(right, 0, last.Width()+1, last.Spans)
		all = all[:len(all)-1]
	}
	// The freshness stands at the right, before the clock, so that it stays in
	// place while the values left of it change.
	last := all[len(all)-1]
	x := 1
	for _, p := range all[:len(all)-1] {
		x = a.Spans(x, 0, a.W()-x, p.Spans) + 2
	}
	at := max(right-gap-last.Width(), min(x, a.W()))
	a.Spans(at, 0, right-at, last.Spans)
}
