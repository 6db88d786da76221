package detail

import (
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/moment"
)

func (m *worker) sequenceSection(w *cluster.Worker) Section {
	if !w.Role.HoldsKV() {
		return m.imageSection(w)
	}
	s := &w.Stats
	running := []draw.Span{draw.Dim.Text(cells.PadRight("running", 14) + " "), draw.Strong.Text(moment.Number(w, s.Running))}
	if s.MaxSeqs > 0 {
		running = append(running, draw.Plain.Text(" of "+cells.Commas(s.MaxSeqs)+"  "))
		running = append(running, draw.Bar(m.Glyphs, float64(s.Running)/float64(s.MaxSeqs), 16, draw.Good)...)
	}
	lines := [][]draw.Span{
		running,
		draw.Fact("waiting", moment.Number(w, s.Waiting)+"   KV coming "+moment.Number(w, s.RemoteWait), draw.Plain),
		draw.Fact("tokens/s", cells.CompactOr(w.TokS)+"   prefix hit "+percentSign(w.HitRate), draw.Plain),
	}
	return Section{"sequences (" + moment.Sequences(w) + ")", append(lines, m.sequenceLines(w.Name)...)}
}

func (m *worker) transferSection(w *cluster.Worker) Section {
	s := &w.Stats
	moved, ms, rate := moment.Transfers(w)
	mean := cells.Unknown
	if ms != nil {
		mean = cells.Millis(ms) + " ms"
	}
	if !w.Role.HoldsKV() {
		return Section{"embeddings read by others", [][]draw.Span{
			draw.Fact("images", moment.Number(w, s.TransfersTotal), draw.Plain),
			draw.Fact("moved", moved, draw.Plain),
			draw.Fact("mean time", mean, draw.Plain),
			draw.Fact("rate in flight", rate, draw.Plain),
		}}
	}
	title, prefills := "KV transfers", [][]draw.Span{
		draw.Fact("remote prefill", moment.Number(w, s.RemotePrefillTotal), draw.Plain),
		draw.Fact("local prefill", moment.Number(w, s.LocalPrefillTotal), draw.Plain),
		draw.Fact("fallback", moment.Number(w, s.FallbackTotal), draw.Plain),
	}
	if a := m.Activity(w.Name); a != nil && a.Error == "" {
		title += " (" + cells.Commas(a.TransfersTotal) + ")"
	}
	return Section{title, append(append(m.transferLines(w.Name), prefills...), [][]draw.Span{
		draw.Fact("transfers", moment.Number(w, s.TransfersTotal), draw.Plain),
		draw.Fact("moved", moved, draw.Plain),
		draw.Fact("mean time", mean, draw.Plain),
		draw.Fact("rate in flight", rate, draw.Plain),
	}...)}
}

// activityRows limits the sequences, and the transfers, on the screen of a worker, so that
// they do not push the rest off it.
func (m *worker) activityRows() int {
	return cells.Clamp(m.Height/2-6, detailRows, cluster.MaxActivity)
}

// roomy reports whether the left column of a worker's screen has room for all columns of
// its lists.
func (m *worker) roomy() bool {
	return m.Width >= 140 || m.Width < wide && m.Width >= 78
}

// unasked says why nothing is known of what a worker has in hand; nil when it is.
func (m *worker) unasked(worker string) [][]draw.Span {
	switch a := m.Activity(worker); {
	case a == nil && m.Recorded:
		return [][]draw.Span{{draw.Dim.Text("not recorded: this worker was not open")}}
	case a == nil:
		return [][]draw.Span{{draw.Dim.Text("asking " + worker + m.Glyphs.More)}}
	case a.Error != "":
		return [][]draw.Span{{draw.Warn.Text(worker + " does not report them: " + a.Error)}}
	}
	return nil
}

// sequenceLines list the sequences of a worker, the oldest first.
func (m *worker) sequenceLines(worker string) [][]draw.Span {
	if why := m.unasked(worker); why != nil {
		return why
	}
	a := m.Activity(worker)
	if a.SequencesTotal == 0 {
		return [][]draw.Span{{draw.Dim.Text("none at present")}}
	}
	titles, ids := "STATE REQUEST PROMPT OUT BLOCKS AGE", 10
	if m.roomy() {
		titles, ids = "STATE REQUEST PROMPT CACHED COMPUTED OUT BLOCKS AGE", 20
	}
	rows := [][]draw.Span{draw.Titles(titles)}
	for i := range a.Sequences[:min(len(a.Sequences), m.activityRows())] {
		s := &a.Sequences[i]
		row := []draw.Span{sequenceStyle(s.State).Text(string(s.State)), draw.Plain.Text(cells.ClipMiddle(cells.OrUnknown(s.RequestID), ids, m.Glyphs.More)), draw.Plain.Text(cells.Commas(s.PromptTokens))}
		if m.roomy() {
			row = append(row, draw.Plain.Text(cells.Commas(s.CachedTokens)), draw.Plain.Text(cells.Commas(s.ComputedTokens)))
		}
		rows = append(rows, append(row, draw.Plain.Text(cells.Commas(s.OutTokens)), draw.Plain.Text(cells.Commas(s.Blocks)), draw.Plain.Text(m.ageSince(s.AgeMS))))
	}
	return m.andMore(draw.Grid(rows, []bool{false, false, true, true, true, true, true, true}), a.SequencesTotal-(len(rows)-1))
}

// transferLines list the KV transfers of a worker, the oldest first.
func (m *worker) transferLines(worker string) [][]draw.Span {
	if m.unasked(worker) != nil {
		return nil // said among the sequences
	}
	a := m.Activity(worker)
	if a.TransfersTotal == 0 {
		return [][]draw.Span{{draw.Dim.Text("none at present")}}
	}
	titles, ids := "DIR PEER REQUEST BLOCKS AGE STATE", 10
	if m.roomy() {
		titles, ids = "DIR PEER VIA REQUEST BLOCKS SIZE AGE KIND STATE", 16
	}
	rows := [][]draw.Span{draw.Titles(titles)}
	for i := range a.Transfers[:min(len(a.Transfers), m.activityRows())] {
		t := &a.Transfers[i]
		st := draw.Dim
		if t.State == cluster.TransferActive {
			st = draw.Good
		}
		row := []draw.Span{draw.Plain.Text(string(t.Direction)), draw.Plain.Text(cells.OrUnknown(t.Peer))}
		if m.roomy() {
			row = append(row, draw.Plain.Text(cells.OrUnknown(t.Transport)))
		}
		row = append(row, draw.Plain.Text(cells.ClipMiddle(cells.OrUnknown(t.RequestID), ids, m.Glyphs.More)), draw.Plain.Text(cells.IntOr(t.BlocksDone)+"/"+cells.Commas(t.Blocks)))
		if m.roomy() {
			row = append(row, draw.Plain.Text(cells.Bytes(float64(t.Bytes))))
		}
		row = append(row, draw.Plain.Text(m.ageSince(t.AgeMS)))
		if m.roomy() {
			row = append(row, draw.Plain.Text(string(t.Kind)))
		}
		rows = append(rows, append(row, st.Text(string(t.State))))
	}
	right := []bool{false, false, false, true, true}
	if m.roomy() {
		right = []bool{false, false, false, false, true, true, true}
	}
	return m.andMore(draw.Grid(rows, right), a.TransfersTotal-(len(rows)-1))
}

// ageSince is an age as of the snapshot, as old as it is by now.
func (m *worker) ageSince(ms int64) string {
	return cells.Seconds(max(time.Duration(ms)*time.Millisecond+m.Countdown, 0).Truncate(100 * time.Millisecond))
}

func (m *worker) andMore(lines [][]draw.Span, more int) [][]draw.Span {
	if more <= 0 {
		return lines
	}
	return append(lines, []draw.Span{draw.Dim.Text(m.Glyphs.More + " and " + cells.Commas(more) + " more")})
}

func sequenceStyle(s cluster.SequenceState) draw.Style {
	switch s {
	case cluster.SequenceDecode:
		return draw.Decode
	case cluster.SequencePrefill:
		return draw.Prefill
	case cluster.SequencePreempted:
		return draw.Warn
	}
	return draw.Dim
}
