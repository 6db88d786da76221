package tui

import (
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

func (m *model) sequenceSection(w *cluster.Worker) section {
	s := &w.Stats
	running := []span{{padRight("running", 14) + " ", dim}, {number(w, s.Running), strong}}
	if s.MaxSeqs > 0 {
		running = append(running, span{" of " + commas(s.MaxSeqs) + "  ", plain})
		running = append(running, bar(m.glyphs, float64(s.Running)/float64(s.MaxSeqs), 16, good)...)
	}
	lines := [][]span{
		running,
		fact("waiting", number(w, s.Waiting)+"   KV coming "+number(w, s.RemoteWait), plain),
		fact("tokens/s", compactOr(w.TokS)+"   prefix hit "+percentSign(w.HitRate), plain),
	}
	return section{"sequences (" + seqText(w) + ")", append(lines, m.sequenceLines(w.Name)...)}
}

func (m *model) transferSection(w *cluster.Worker) section {
	s := &w.Stats
	moved, mean, rate := unknown, unknown, unknown
	if measured(w) {
		moved = size(float64(s.TransferBytesTotal))
	}
	if s.TransfersTotal > 0 {
		v := float64(s.TransferNanosTotal) / float64(s.TransfersTotal) / 1e6
		mean = millis(&v) + " ms"
	}
	if s.TransferNanosTotal > 0 {
		v := float64(s.TransferBytesTotal) / (float64(s.TransferNanosTotal) / 1e9)
		rate = throughput(&v)
	}
	title := "KV transfers"
	if a := m.activity(w.Name); a != nil && a.Error == "" {
		title += " (" + commas(a.TransfersTotal) + ")"
	}
	return section{title, append(m.transferLines(w.Name), [][]span{
		fact("remote prefill", number(w, s.RemotePrefillTotal), plain),
		fact("local prefill", number(w, s.LocalPrefillTotal), plain),
		fact("fallback", number(w, s.FallbackTotal), plain),
		fact("transfers", number(w, s.TransfersTotal), plain),
		fact("moved", moved, plain),
		fact("mean time", mean, plain),
		fact("rate in flight", rate, plain),
	}...)}
}

// activity is what a worker has in hand, if the snapshot says so.
func (m *model) activity(worker string) *cluster.Activity {
	if a := m.snap.Activity; a != nil && a.Worker == worker {
		return a
	}
	return nil
}

// activityRows is how many sequences are on the screen of a worker, and how many
// transfers: those of a tall screen do not push the rest off it.
func (m *model) activityRows() int { return clamp(m.height/2-6, detailRows, cluster.MaxActivity) }

// roomy reports whether the left column of a worker's screen has room for all columns of
// its lists.
func (m *model) roomy() bool {
	return m.width >= 140 || m.width < wideDetail && m.width >= 78
}

// unasked says why nothing is known of what a worker has in hand; nil when it is.
func (m *model) unasked(worker string) [][]span {
	switch a := m.activity(worker); {
	case a == nil && m.play != nil:
		return [][]span{{{"not recorded: nobody looked at this worker", dim}}}
	case a == nil:
		return [][]span{{{"asking " + worker + m.glyphs.more, dim}}}
	case a.Error != "":
		return [][]span{{{worker + " does not tell: " + a.Error, warn}}}
	}
	return nil
}

// sequenceLines list the sequences of a worker, the oldest first.
func (m *model) sequenceLines(worker string) [][]span {
	if why := m.unasked(worker); why != nil {
		return why
	}
	a := m.activity(worker)
	if a.SequencesTotal == 0 {
		return [][]span{{{"none at present", dim}}}
	}
	titles, ids := "STATE REQUEST PROMPT OUT BLOCKS AGE", 10
	if m.roomy() {
		titles, ids = "STATE REQUEST PROMPT CACHED COMPUTED OUT BLOCKS AGE", 20
	}
	rows := [][]span{titleRow(titles)}
	for i := range a.Sequences[:min(len(a.Sequences), m.activityRows())] {
		s := &a.Sequences[i]
		row := []span{{string(s.State), sequenceStyle(s.State)}, {clipMiddle(orUnknown(s.RequestID), ids, m.glyphs.more), plain}, {commas(s.PromptTokens), plain}}
		if m.roomy() {
			row = append(row, span{commas(s.CachedTokens), plain}, span{commas(s.ComputedTokens), plain})
		}
		rows = append(rows, append(row, span{commas(s.OutTokens), plain}, span{commas(s.Blocks), plain}, span{m.ageSince(s.AgeMS), plain}))
	}
	return m.andMore(gridLines(rows, []bool{false, false, true, true, true, true, true, true}), a.SequencesTotal-(len(rows)-1))
}

// transferLines list the KV transfers of a worker, the oldest first.
func (m *model) transferLines(worker string) [][]span {
	if m.unasked(worker) != nil {
		return nil // said among the sequences
	}
	a := m.activity(worker)
	if a.TransfersTotal == 0 {
		return [][]span{{{"none at present", dim}}}
	}
	titles, ids := "DIR PEER REQUEST BLOCKS AGE STATE", 10
	if m.roomy() {
		titles, ids = "DIR PEER VIA REQUEST BLOCKS SIZE AGE KIND STATE", 16
	}
	rows := [][]span{titleRow(titles)}
	for i := range a.Transfers[:min(len(a.Transfers), m.activityRows())] {
		t := &a.Transfers[i]
		st := dim
		if t.State == cluster.TransferActive {
			st = good
		}
		row := []span{{string(t.Direction), plain}, {orUnknown(t.Peer), plain}}
		if m.roomy() {
			row = append(row, span{orUnknown(t.Transport), plain})
		}
		row = append(row, span{clipMiddle(orUnknown(t.RequestID), ids, m.glyphs.more), plain}, span{intOr(t.BlocksDone) + "/" + commas(t.Blocks), plain})
		if m.roomy() {
			row = append(row, span{size(float64(t.Bytes)), plain})
		}
		row = append(row, span{m.ageSince(t.AgeMS), plain})
		if m.roomy() {
			row = append(row, span{string(t.Kind), plain})
		}
		rows = append(rows, append(row, span{string(t.State), st}))
	}
	right := []bool{false, false, false, true, true}
	if m.roomy() {
		right = []bool{false, false, false, false, true, true, true}
	}
	return m.andMore(gridLines(rows, right), a.TransfersTotal-(len(rows)-1))
}

// ageSince is an age as of the snapshot, as old as it is by now.
func (m *model) ageSince(ms int64) string {
	return seconds(max(time.Duration(ms)*time.Millisecond+m.countdown(), 0).Truncate(100 * time.Millisecond))
}

func (m *model) andMore(lines [][]span, more int) [][]span {
	if more <= 0 {
		return lines
	}
	return append(lines, []span{{m.glyphs.more + " and " + commas(more) + " more", dim}})
}

func sequenceStyle(s cluster.SequenceState) style {
	switch s {
	case cluster.SequenceDecode:
		return decode
	case cluster.SequencePrefill:
		return prefill
	case cluster.SequencePreempted:
		return warn
	}
	return dim
}
