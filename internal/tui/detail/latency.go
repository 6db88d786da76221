package detail

import (
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/moment"
)

// keepLatencies is the number of samples that a [LatencyHistory] keeps.
const keepLatencies = 240

// LatencyHistory holds the latencies of the newest snapshots, oldest first.
type LatencyHistory struct {
	at   []time.Time
	past []cluster.Latency
}

// Add takes in a snapshot. An earlier one than the last, as a replay that was wound back
// has it, starts anew.
func (h *LatencyHistory) Add(s *cluster.Snapshot) {
	if n := len(h.at); n > 0 && !s.Time.After(h.at[n-1]) {
		if s.Time.Equal(h.at[n-1]) {
			return
		}
		h.at, h.past = nil, nil
	}
	h.at, h.past = append(h.at, s.Time), append(h.past, s.Latency)
	over := max(len(h.at)-keepLatencies, 0)
	h.at, h.past = h.at[over:], h.past[over:]
}

// latency is the screen of the latencies: percentiles, how they went, and the KV transfers of
// each decode worker.
type latency struct {
	*moment.Moment
	quiet
	history *LatencyHistory
}

// Latency returns the screen of the latencies, whose charts show the history.
func Latency(m *moment.Moment, h *LatencyHistory) Screen { return &latency{Moment: m, history: h} }

func (m *latency) Header() []draw.Part { return titled(m.Moment, "latency", "of requests") }

func (m *latency) Subject() Subject {
	return Subject{Title: "latency", Value: m.Snap.Latency, NoWorker: notWorker, NoOpen: noFurther}
}

// measured are the durations with percentiles.
var measured = []struct {
	name string
	of   func(l *cluster.Latency) cluster.Percentiles
}{
	{"TTFT", func(l *cluster.Latency) cluster.Percentiles { return l.TTFT }},
	{"ITL", func(l *cluster.Latency) cluster.Percentiles { return l.ITL }},
	{"queue", func(l *cluster.Latency) cluster.Percentiles { return l.Queue }},
	{"KV xfer", func(l *cluster.Latency) cluster.Percentiles { return l.Transfers }},
}

func (m *latency) Sections(width int) [][]Section {
	l := &m.Snap.Latency
	rows := [][]draw.Span{draw.Titles("MS P50 P95 P99")}
	for _, o := range measured {
		p := o.of(l)
		rows = append(rows, []draw.Span{draw.Dim.Text(o.name), draw.Plain.Text(cells.Millis(p.P50)), draw.Plain.Text(cells.Millis(p.P95)), draw.Plain.Text(cells.Millis(p.P99))})
	}
	lines := draw.Grid(rows, []bool{false, true, true, true})
	lines = append(lines, draw.Fact("requests", cells.Commas(l.Requests), draw.Plain))
	left := []Section{{"last " + cells.Age(time.Duration(l.WindowS)*time.Second), lines}, m.transferSection()}
	room := width - 4
	if width >= wide {
		room = width*42/100 - 4
	}
	var charts []Section
	for _, o := range measured {
		charts = append(charts, m.chart(o.name, max(room, 10), o.of))
	}
	return stack(width, left, charts)
}

// chart draws how the 95th percentile went.
func (m *latency) chart(name string, width int, of func(l *cluster.Latency) cluster.Percentiles) Section {
	from := max(len(m.history.past)-width, 0)
	var samples []*float64
	for i := from; i < len(m.history.past); i++ {
		samples = append(samples, of(&m.history.past[i]).P95)
	}
	top, some := draw.Peak(samples)
	if !some {
		return Section{name + " p95", [][]draw.Span{{draw.Dim.Text("no samples yet")}}}
	}
	var lines [][]draw.Span
	for _, l := range draw.Sparkline(samples, width, 3, top, m.Glyphs.Spark) {
		lines = append(lines, []draw.Span{draw.Focused.Text(l)})
	}
	span := m.history.at[len(m.history.at)-1].Sub(m.history.at[from])
	return Section{name + " p95, last " + cells.ClockLeft(span) + ", max " + cells.Millis(&top) + " ms", lines}
}

// transferSection lists what each decode worker has received.
func (m *latency) transferSection() Section {
	rows := [][]draw.Span{draw.Titles("WORKER COUNT MOVED MEAN/MS P95/MS RATE")}
	for i := range m.Snap.Workers {
		w := &m.Snap.Workers[i]
		if w.Role != cluster.RoleDecode {
			continue
		}
		moved, mean, rate := moment.Transfers(w)
		p95 := cells.Unknown
		if h := w.Stats.TransferTimes; h != nil {
			p95 = cells.Millis(cluster.PercentilesOf(*h).P95)
		}
		rows = append(rows, []draw.Span{draw.Decode.Text(w.Name), draw.Plain.Text(moment.Number(w, w.Stats.TransfersTotal)), draw.Plain.Text(moved), draw.Plain.Text(cells.Millis(mean)), draw.Plain.Text(p95), draw.Plain.Text(rate)})
	}
	if len(rows) == 1 {
		return Section{"KV transfers", [][]draw.Span{{draw.Dim.Text("no decode worker")}}}
	}
	return Section{"KV transfers to decode workers, since their start", draw.Grid(rows, []bool{false, true, true, true, true, true})}
}
