package pane

import (
	"fmt"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/detail"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/moment"
	"github.com/dynctl/dynctl/internal/tui/plain"
)

// latency is the pane of percentiles over the window of the snapshot.
type latency struct {
	still
	history detail.LatencyHistory // for its screen
}

// Latency returns the pane of the latencies.
func Latency(m *moment.Moment) Pane { return &latency{still: still{m}} }

// Update remembers the latencies of a new snapshot.
func (p *latency) Update() { p.history.Add(&p.m.Snap) }

func (p *latency) Draw(a draw.Area, _ bool) {
	l := &p.m.Snap.Latency
	const name = 9
	cell := cells.Clamp((a.W()-name)/3, 6, 12)
	row := func(y int, title string, values [3]string, st draw.Style) {
		a.Put(0, y, title, draw.Dim)
		for i, v := range values {
			a.Put(name+(i+1)*cell-cells.Width(v), y, v, st)
		}
	}
	percentiles := func(y int, title string, p cluster.Percentiles) {
		row(y, title, [3]string{cells.Millis(p.P50), cells.Millis(p.P95), cells.Millis(p.P99)}, draw.Plain)
	}
	row(0, "", [3]string{"p50", "p95", "p99"}, draw.Heading)
	percentiles(1, "TTFT ms", l.TTFT)
	percentiles(2, "ITL ms", l.ITL)
	percentiles(3, "queue ms", l.Queue)
	if l.Transfers.P50 != nil || l.Transfer == nil {
		percentiles(4, "xfer ms", l.Transfers)
	} else { // none within the window
		x := a.Put(0, 4, "xfer ms ", draw.Dim)
		x = a.Put(x, 4, cells.Millis(l.Transfer), draw.Plain)
		a.Put(x, 4, " mean so far", draw.Dim)
	}
	x := a.Put(0, 5, "KV xfer ", draw.Dim)
	x = a.Put(x, 5, cells.Throughput(l.TransferBS), draw.Plain)
	a.Put(x, 5, "  "+cells.Commas(l.Requests)+" req", draw.Plain)
}

// Heading names the window the percentiles cover.
func (p *latency) Heading() (title, note, below string) {
	switch window := p.m.Snap.Latency.WindowS; {
	case window <= 0:
		return "", "", ""
	case window%60 == 0 && window > 60:
		return fmt.Sprintf(", last %dm", window/60), "", ""
	default:
		return fmt.Sprintf(", last %ds", window), "", ""
	}
}

func (p *latency) Subject() detail.Subject {
	return detail.Subject{Title: "latency", Value: p.m.Snap.Latency, NoWorker: chooseWorker, Open: detail.Latency(p.m, &p.history)}
}

func (p *latency) Table(o plain.Options) plain.Table {
	l := &p.m.Snap.Latency
	t := plain.New("latency", "WHAT", ">P50", ">P95", ">P99", ">MEAN")
	none := cells.Unknown
	add := func(name string, v cluster.Percentiles) {
		t.Add(name, o.Float(v.P50, cells.Millis), o.Float(v.P95, cells.Millis), o.Float(v.P99, cells.Millis), none)
	}
	add("TTFT ms", l.TTFT)
	add("ITL ms", l.ITL)
	add("queue ms", l.Queue)
	v := l.Transfers
	t.Add("KV xfer ms", o.Float(v.P50, cells.Millis), o.Float(v.P95, cells.Millis), o.Float(v.P99, cells.Millis), o.Float(l.Transfer, cells.Millis))
	t.Add("KV xfer B/s", none, none, none, o.Float(l.TransferBS, cells.CompactOr))
	return t
}
