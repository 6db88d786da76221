package tui

import (
	"fmt"
	"strconv"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
)

// drawLatency is pane 4: percentiles over the window of the snapshot.
func (m *model) drawLatency(a draw.Area) {
	l := &m.snap.Latency
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
	x := a.Put(0, 4, "KV xfer ms ", draw.Dim)
	x = a.Put(x, 4, cells.Millis(l.Transfer), draw.Plain)
	if l.Transfer != nil {
		a.Put(x, 4, " mean", draw.Dim)
	}
	x = a.Put(0, 5, "KV xfer ", draw.Dim)
	x = a.Put(x, 5, cells.Throughput(l.TransferBS), draw.Plain)
	a.Put(x, 5, "  "+cells.Commas(l.Requests)+" req", draw.Plain)
}

// latencyTitle names the window the percentiles cover.
func (m *model) latencyTitle() string {
	if m.snap.Latency.WindowS <= 0 {
		return "latency"
	}
	if m.snap.Latency.WindowS%60 == 0 && m.snap.Latency.WindowS > 60 {
		return fmt.Sprintf("latency, last %dm", m.snap.Latency.WindowS/60)
	}
	return "latency, last " + strconv.Itoa(m.snap.Latency.WindowS) + "s"
}
