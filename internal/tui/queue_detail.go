package tui

import (
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
)

// queueSections are the boxes of the queue's screen: its messages, what waits where,
// and the history of the depth.
func (m *model) queueSections() []section {
	q := &m.snap.Queue
	rate := cells.Unknown
	if q.AdmittedS != nil {
		rate = cells.PerSecond(*q.AdmittedS)
	}
	waits := [][]draw.Span{
		draw.Fact("waiting", m.depthText(), draw.Strong),
		draw.Fact("prefill queue", cells.IntOr(q.Prefill), draw.Plain),
		draw.Fact("in work", cells.IntOr(q.PrefillBusy), draw.Plain),
		draw.Fact("dead letters", cells.IntOr(q.Dead), draw.Plain),
		draw.Fact("in engines", cells.IntOr(q.Waiting), draw.Plain),
		draw.Fact("for transfers", cells.IntOr(q.RemoteWait), draw.Plain),
		draw.Fact("admitted", rate, draw.Plain),
	}
	return []section{m.queuedSection(), {"what requests wait for", waits}, m.depthSection()}
}

// queuedSection lists the oldest messages of the work queue.
func (m *model) queuedSection() section {
	q := &m.snap.Queue
	if len(q.Messages) == 0 {
		none := "no message in the queue"
		if q.Prefill == nil {
			none = "the queue is not known: nats does not answer"
		}
		return section{"messages", [][]draw.Span{{draw.Dim.Text(none)}}}
	}
	rows := [][]draw.Span{draw.Titles("REQUEST FOR PROMPT BLOCKS SIZE AGE LEFT STATE")}
	for i := range q.Messages {
		p := &q.Messages[i]
		prompt, blocks, bytes, left := cells.Unknown, cells.Unknown, cells.Unknown, cells.Unknown
		if p.Worker != "" {
			prompt, blocks, bytes = cells.Commas(p.PromptTokens), cells.Commas(p.Blocks), cells.Bytes(float64(p.Bytes))
		}
		if !p.Deadline.IsZero() {
			left = cells.Seconds(p.Deadline.Sub(m.at()))
		}
		state, st := "waits", draw.Plain
		if p.InWork {
			state, st = "in work", draw.Good
		}
		rows = append(rows, []draw.Span{
			draw.Plain.Text(cells.ClipMiddle(cells.OrUnknown(p.RequestID), 24, m.glyphs.More)), draw.Decode.Text(cells.OrUnknown(p.Worker)), draw.Plain.Text(prompt), draw.Plain.Text(blocks),
			draw.Plain.Text(bytes), draw.Plain.Text(cells.Seconds(max(m.at().Sub(p.EnqueuedAt), 0))), draw.Plain.Text(left), st.Text(state),
		})
	}
	lines := draw.Grid(rows, []bool{false, false, true, true, true, true, true, false})
	total := 0
	for _, n := range []*int{q.Prefill, q.PrefillBusy} {
		if n != nil {
			total += *n
		}
	}
	if more := total - len(q.Messages); more > 0 && len(q.Messages) == cluster.MaxQueued {
		lines = append(lines, []draw.Span{draw.Dim.Text(m.glyphs.More + " " + cells.Commas(more) + " more")})
	}
	return section{"messages, oldest first", lines}
}

// depthSection draws the history of the depth.
func (m *model) depthSection() section {
	width := cells.Clamp(m.width-4, 10, len(m.snap.Queue.History))
	window := m.snap.Queue.History
	window = window[max(len(window)-width, 0):]
	top, some := draw.Peak(window)
	if !some {
		return section{"waiting", [][]draw.Span{{draw.Dim.Text("no samples yet")}}}
	}
	var lines [][]draw.Span
	for _, l := range draw.Sparkline(window, width, 4, top, m.glyphs.Spark) {
		lines = append(lines, []draw.Span{draw.Focused.Text(l)})
	}
	return section{"waiting, last " + cells.ClockLeft(time.Duration(len(window))*time.Second) + ", max " + cells.Compact(top), lines}
}
