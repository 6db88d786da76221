package tui

import (
	"fmt"
	"strconv"

	"github.com/dynctl/dynctl/internal/cluster"
)

// drawLatency is pane 4: percentiles over the window of the snapshot.
func (m *model) drawLatency(a area) {
	l := &m.snap.Latency
	const name = 9
	cell := clamp((a.w()-name)/3, 6, 12)
	row := func(y int, title string, values [3]string, st style) {
		a.put(0, y, title, dim)
		for i, v := range values {
			a.put(name+(i+1)*cell-textWidth(v), y, v, st)
		}
	}
	percentiles := func(y int, title string, p cluster.Percentiles) {
		row(y, title, [3]string{millis(p.P50), millis(p.P95), millis(p.P99)}, plain)
	}
	row(0, "", [3]string{"p50", "p95", "p99"}, heading)
	percentiles(1, "TTFT ms", l.TTFT)
	percentiles(2, "ITL ms", l.ITL)
	percentiles(3, "queue ms", l.Queue)
	x := a.put(0, 4, "KV xfer ms ", dim)
	x = a.put(x, 4, millis(l.Transfer), plain)
	if l.Transfer != nil {
		a.put(x, 4, " mean", dim)
	}
	x = a.put(0, 5, "KV xfer ", dim)
	x = a.put(x, 5, throughput(l.TransferBS), plain)
	a.put(x, 5, "  "+commas(l.Requests)+" req", plain)
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
