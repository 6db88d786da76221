package moment

import (
	"fmt"
	"strconv"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
)

// Measured reports whether a worker ever told its figures; before that they are
// unknown, not zero.
func Measured(w *cluster.Worker) bool { return !w.UpdatedAt.IsZero() }

// StateWord is the state as people read it; degraded workers say why instead.
func StateWord(w *cluster.Worker) string {
	switch {
	case w.State == "":
		return "unknown"
	case w.State == cluster.StateDegraded && w.Reason != "":
		return w.Reason
	case w.State == cluster.StateSleeping && w.Sleep > 0:
		return fmt.Sprintf("sleeping %d", w.Sleep)
	case w.State == cluster.StateLoading && w.Progress > 0 && w.Progress <= 1:
		return fmt.Sprintf("loading %d%%", int(w.Progress*100))
	}
	return string(w.State)
}

// StateLook is the glyph and the color of a state.
func StateLook(g *draw.Glyphs, s cluster.State) (string, draw.Style) {
	switch s {
	case cluster.StateReady:
		return g.Ready, draw.Good
	case cluster.StatePending, cluster.StateLoading, cluster.StateWarming:
		return g.Starting, draw.Plain
	case cluster.StateDraining:
		return g.Draining, draw.Warn
	case cluster.StateDrained, cluster.StateStopped, cluster.StateSleeping:
		return g.Drained, draw.Dim
	case cluster.StateDegraded:
		return g.Degraded, draw.Warn
	case cluster.StateFailed, cluster.StateLost:
		return g.Lost, draw.Bad
	}
	return g.Unknown, draw.Dim
}

// look is the sign, the word and the color of a worker's state; what a silent worker does is
// not known.
func (m *Moment) look(w *cluster.Worker) (string, draw.Style) {
	if w.Silent() {
		return m.Glyphs.Degraded + " unknown", draw.Warn
	}
	glyph, st := StateLook(m.Glyphs, w.State)
	return glyph + " " + StateWord(w), st
}

// StateText is the sign and the word of a worker's state.
func (m *Moment) StateText(w *cluster.Worker) string {
	text, _ := m.look(w)
	return text
}

// Ends is the state of a worker, and of a silent one when its lease ends: with that the
// cluster takes it for lost.
func (m *Moment) Ends(w *cluster.Worker) []draw.Span {
	out := m.State(w)
	if !w.Silent() || w.Lease == nil {
		return out
	}
	left, sign := *w.Lease-m.Countdown, ""
	if m.Stale {
		sign = "~" // remembered
	}
	if left <= 0 && !m.Stale {
		return []draw.Span{draw.Bad.Text(m.StateText(w) + ", lease ended")}
	}
	return append(out, draw.Warn.Text(", lease "+sign+cells.Age(max(left, 0))))
}

// State is the sign and the word of a worker's state, with its age where it is old.
func (m *Moment) State(w *cluster.Worker) []draw.Span {
	text, st := m.look(w)
	out := []draw.Span{st.Text(text)}
	switch {
	case w.Silent():
		out[0].Text += " " + cells.Age(m.At().Sub(w.HeardAt))
	case w.Stale && Measured(w):
		out = append(out, draw.Dim.Text(" "+cells.Age(m.At().Sub(w.HeardAt))+" old"))
	}
	return out
}

// RoleStyle is the color of a role.
func RoleStyle(r cluster.Role) draw.Style {
	switch r {
	case cluster.RolePrefill:
		return draw.Prefill
	case cluster.RoleDecode:
		return draw.Decode
	case cluster.RoleEncode:
		return draw.Encode
	}
	return draw.Plain
}

// Sequences is the number of running sequences, "+n" for those that wait.
func Sequences(w *cluster.Worker) string {
	if !Measured(w) {
		return cells.Unknown
	}
	s := strconv.Itoa(w.Stats.Running)
	if wait := w.Stats.Waiting + w.Stats.RemoteWait; wait > 0 {
		s += "+" + strconv.Itoa(wait)
	}
	return s
}

// KVText is used/total KV blocks; of an encode worker, the images that it encodes in a second.
func KVText(w *cluster.Worker) string {
	if w.Images != nil {
		return ImageRate(w.Images)
	}
	if !Measured(w) || w.Stats.KVTotal <= 0 {
		return cells.Unknown
	}
	return strconv.Itoa(w.Stats.KVUsed()) + "/" + strconv.Itoa(w.Stats.KVTotal)
}

// ImageRate is how many images an encode worker encodes in a second.
func ImageRate(r *cluster.ImageRates) string {
	if r.EncodedS == nil {
		return cells.Unknown
	}
	if n := *r.EncodedS; n > 0 && n < 0.095 { // a tower may take long
		return strconv.FormatFloat(n, 'f', 2, 64) + " img/s"
	}
	return cells.CompactOr(r.EncodedS) + " img/s"
}

// Speed is how many tokens a worker handles in a second; of an encode worker, how many bytes of
// embeddings are read from it.
func Speed(w *cluster.Worker) string {
	if w.Images != nil {
		return cells.Throughput(w.Images.MovedBS)
	}
	return cells.CompactOr(w.TokS)
}

// KVBar shows the used share of the KV blocks; the number stands beside it. Of an encode worker
// it is the share of images whose embeddings it had.
func (m *Moment) KVBar(w *cluster.Worker, width int) []draw.Span {
	if w.Images != nil {
		text := "hits " + cells.Percent(w.Images.HitRate)
		if w.Images.HitRate != nil {
			text += "%"
		}
		return []draw.Span{draw.Plain.Text(text)}
	}
	if !Measured(w) || w.Stats.KVTotal <= 0 {
		return nil
	}
	share := float64(w.Stats.KVUsed()) / float64(w.Stats.KVTotal)
	return draw.Bar(m.Glyphs, share, width, kvStyle(share))
}

// kvStyle warns from 90 % and alarms from 97 % on: preemption is near.
func kvStyle(share float64) draw.Style {
	switch {
	case share >= 0.97:
		return draw.Bad
	case share >= 0.90:
		return draw.Warn
	}
	return draw.Good
}

// Number prints a figure of a worker that may never have told any.
func Number[T int | uint64](w *cluster.Worker, n T) string {
	if !Measured(w) {
		return cells.Unknown
	}
	return cells.Commas(n)
}

// Degree is a tensor-parallel degree, which is not known before the model is loaded.
func Degree(n int) string {
	if n == 0 {
		return cells.Unknown
	}
	return cells.Commas(n)
}

// Instance is the id of a worker's or node's instance; empty before it has one.
func Instance(id cluster.InstanceID) string {
	if id == 0 {
		return ""
	}
	return id.String()
}

// Transfers says how many bytes of KV a worker has moved since its start, how many
// milliseconds a transfer took on average (nil without one), and how fast it was.
func Transfers(w *cluster.Worker) (moved string, mean *float64, rate string) {
	s := &w.Stats
	moved, rate = cells.Unknown, cells.Unknown
	if Measured(w) {
		moved = cells.Bytes(float64(s.TransferBytesTotal))
	}
	if s.TransfersTotal > 0 {
		v := float64(s.TransferNanosTotal) / float64(s.TransfersTotal) / 1e6
		mean = &v
	}
	if s.TransferNanosTotal > 0 {
		v := float64(s.TransferBytesTotal) / (float64(s.TransferNanosTotal) / 1e9)
		rate = cells.Throughput(&v)
	}
	return moved, mean, rate
}
