package detail

import (
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/moment"
)

// queue is the screen of the prefill queue: its messages, what waits where, and the history
// of the depth.
type queue struct {
	*moment.Moment
	quiet
}

// Queue returns the screen of the prefill queue.
func Queue(m *moment.Moment) Screen { return &queue{Moment: m} }

func (m *queue) Header() []draw.Part { return titled(m.Moment, "prefill", "queue") }

func (m *queue) Subject() Subject {
	return Subject{Title: "queue", Value: m.Snap.Queue, NoWorker: notWorker, NoOpen: noFurther}
}

func (m *queue) Sections(int) [][]Section {
	q := &m.Snap.Queue
	rate := cells.Unknown
	if q.AdmittedS != nil {
		rate = cells.PerSecond(*q.AdmittedS)
	}
	waits := [][]draw.Span{
		draw.Fact("waiting", m.Depth(), draw.Strong),
		draw.Fact("prefill queue", cells.IntOr(q.Prefill), draw.Plain),
		draw.Fact("in work", cells.IntOr(q.PrefillBusy), draw.Plain),
		draw.Fact("dead letters", cells.IntOr(q.Dead), draw.Plain),
		draw.Fact("in engines", cells.IntOr(q.Waiting), draw.Plain),
		draw.Fact("for transfers", cells.IntOr(q.RemoteWait), draw.Plain),
		draw.Fact("admitted", rate, draw.Plain),
	}
	return [][]Section{{m.messageSection(), {"what requests wait for", waits}, m.depthSection()}}
}

// messageSection lists the oldest messages of the work queue.
func (m *queue) messageSection() Section {
	q := &m.Snap.Queue
	if len(q.Messages) == 0 {
		none := "no message in the queue"
		if q.Prefill == nil {
			none = "the queue is not known: nats does not answer"
		}
		return Section{"messages", [][]draw.Span{{draw.Dim.Text(none)}}}
	}
	rows := [][]draw.Span{draw.Titles("REQUEST FOR PROMPT BLOCKS SIZE AGE LEFT STATE")}
	for i := range q.Messages {
		p := &q.Messages[i]
		prompt, blocks, bytes, left := cells.Unknown, cells.Unknown, cells.Unknown, cells.Unknown
		if p.Worker != "" {
			prompt, blocks, bytes = cells.Commas(p.PromptTokens), cells.Commas(p.Blocks), cells.Bytes(float64(p.Bytes))
		}
		if !p.Deadline.IsZero() {
			left = cells.Seconds(p.Deadline.Sub(m.At()))
		}
		state, st := "waits", draw.Plain
		if p.InWork {
			state, st = "in work", draw.Good
		}
		rows = append(rows, []draw.Span{
			draw.Plain.Text(cells.ClipMiddle(cells.OrUnknown(p.RequestID), 24, m.Glyphs.More)), draw.Decode.Text(cells.OrUnknown(p.Worker)), draw.Plain.Text(prompt), draw.Plain.Text(blocks),
			draw.Plain.Text(bytes), draw.Plain.Text(cells.Seconds(max(m.At().Sub(p.EnqueuedAt), 0))), draw.Plain.Text(left), st.Text(state),
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
		lines = append(lines, []draw.Span{draw.Dim.Text(m.Glyphs.More + " " + cells.Commas(more) + " more")})
	}
	return Section{"messages, oldest first", lines}
}

// depthSection draws the history of the depth.
func (m *queue) depthSection() Section {
	width := cells.Clamp(m.Width-4, 10, len(m.Snap.Queue.History))
	window := m.Snap.Queue.History
	window = window[max(len(window)-width, 0):]
	top, some := draw.Peak(window)
	if !some {
		return Section{"waiting", [][]draw.Span{{draw.Dim.Text("no samples yet")}}}
	}
	var lines [][]draw.Span
	for _, l := range draw.Sparkline(window, width, 4, top, m.Glyphs.Spark) {
		lines = append(lines, []draw.Span{draw.Focused.Text(l)})
	}
	return Section{"waiting, last " + cells.ClockLeft(time.Duration(len(window))*time.Second) + ", max " + cells.Compact(top), lines}
}
