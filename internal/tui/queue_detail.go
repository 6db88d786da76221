package tui

import (
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// queueSections are the boxes of the queue's screen: its messages, what waits where,
// and the history of the depth.
func (m *model) queueSections() []section {
	q := &m.snap.Queue
	rate := unknown
	if q.AdmittedS != nil {
		rate = perSecond(*q.AdmittedS)
	}
	waits := [][]span{
		fact("waiting", m.depthText(), strong),
		fact("prefill queue", intOr(q.Prefill), plain),
		fact("in work", intOr(q.PrefillBusy), plain),
		fact("dead letters", intOr(q.Dead), plain),
		fact("in engines", intOr(q.Waiting), plain),
		fact("for transfers", intOr(q.RemoteWait), plain),
		fact("admitted", rate, plain),
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
		return section{"messages", [][]span{{{none, dim}}}}
	}
	rows := [][]span{titleRow("REQUEST FOR PROMPT BLOCKS SIZE AGE LEFT STATE")}
	for i := range q.Messages {
		p := &q.Messages[i]
		prompt, blocks, bytes, left := unknown, unknown, unknown, unknown
		if p.Worker != "" {
			prompt, blocks, bytes = commas(p.PromptTokens), commas(p.Blocks), size(float64(p.Bytes))
		}
		if !p.Deadline.IsZero() {
			left = seconds(p.Deadline.Sub(m.at()))
		}
		state, st := "waits", plain
		if p.InWork {
			state, st = "in work", good
		}
		rows = append(rows, []span{
			{clipMiddle(orUnknown(p.RequestID), 24, m.glyphs.more), plain}, {orUnknown(p.Worker), decode}, {prompt, plain}, {blocks, plain},
			{bytes, plain}, {seconds(max(m.at().Sub(p.EnqueuedAt), 0)), plain}, {left, plain}, {state, st},
		})
	}
	lines := gridLines(rows, []bool{false, false, true, true, true, true, true, false})
	total := 0
	for _, n := range []*int{q.Prefill, q.PrefillBusy} {
		if n != nil {
			total += *n
		}
	}
	if more := total - len(q.Messages); more > 0 && len(q.Messages) == cluster.MaxQueued {
		lines = append(lines, []span{{m.glyphs.more + " " + commas(more) + " more", dim}})
	}
	return section{"messages, oldest first", lines}
}

// depthSection draws the history of the depth.
func (m *model) depthSection() section {
	width := clamp(m.width-4, 10, len(m.snap.Queue.History))
	window := m.snap.Queue.History
	window = window[max(len(window)-width, 0):]
	top, some := peak(window)
	if !some {
		return section{"waiting", [][]span{{{"no samples yet", dim}}}}
	}
	var lines [][]span
	for _, l := range sparkline(window, width, 4, top, m.glyphs.spark) {
		lines = append(lines, []span{{l, focused}})
	}
	return section{"waiting, last " + clockLeft(time.Duration(len(window))*time.Second) + ", max " + compact(top), lines}
}
