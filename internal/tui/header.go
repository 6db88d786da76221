package tui

import (
	"fmt"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
)

// freshKind is how far the screen can be trusted.
type freshKind int

const (
	fresh freshKind = iota
	stale
	frozen
	replay
	closed
	waiting
)

// freshness is the state of the data with the words for the header.
type freshness struct {
	kind freshKind
	text string
	st   draw.Style
}

// silentAfter is how many intervals without a snapshot make the screen stale by
// itself, should the source not say so.
const silentAfter = 5

// freshness looks at the snapshot and at how long ago it came.
func (m *model) freshness() freshness {
	f := &m.snap.Fresh
	every := cells.Interval(m.interval)
	switch {
	case m.paused:
		return freshness{frozen, "PAUSED " + cells.Age(m.now.Sub(m.pausedAt)), draw.Warn}
	case !m.have && m.ended:
		return freshness{closed, "ENDED: no snapshot came", draw.Bad}
	case !m.have:
		return freshness{waiting, "WAITING for the first snapshot", draw.Dim}
	case m.ended:
		return freshness{closed, "ENDED " + cells.Age(m.since()) + " ago", draw.Bad}
	case m.play != nil && !f.Live():
		return freshness{stale, m.playText() + " STALE " + cells.Age(m.at().Sub(f.StaleSince)), draw.Bad}
	case m.play != nil:
		return freshness{replay, m.playText(), draw.Focused}
	case !f.Live():
		return freshness{stale, m.staleText(), draw.Bad}
	case m.since() >= m.silence():
		return freshness{stale, fmt.Sprintf("STALE %s: no snapshot arrives", cells.Age(m.since())), draw.Bad}
	}
	return freshness{fresh, "LIVE every " + every, draw.Good}
}

// staleText says for how long, why, and what happens next.
func (m *model) staleText() string {
	f := &m.snap.Fresh
	why := "no new data"
	switch {
	case !f.EtcdOK && !f.NATSOK:
		why = "etcd and nats unreachable"
	case !f.EtcdOK:
		why = "etcd unreachable"
	case !f.NATSOK:
		why = "nats unreachable"
	}
	text := fmt.Sprintf("STALE %s: %s", cells.Age(m.at().Sub(f.StaleSince)), why)
	if left := f.NextAttempt.Sub(m.at()); !f.NextAttempt.IsZero() && left > 0 {
		text += ", retry in " + cells.Age(left+time.Second-1)
	} else if !f.NextAttempt.IsZero() {
		text += ", retrying"
	}
	return text
}

// part is a piece of the header; the lowest leave goes first.
type part struct {
	spans []draw.Span
	leave int // 0 never
}

func (p part) width() int { return draw.Width(p.spans) }

// clock is the time in the header: that of the recording in a replay.
func (m *model) clock() time.Time {
	if m.play != nil && m.have {
		return m.at()
	}
	return m.now
}

// headerParts are the left side of the header, for the panes.
func (m *model) headerParts() []part {
	f := &m.snap.Fresh
	store := func(name string, ok bool, d time.Duration) []draw.Span {
		if !m.have {
			return []draw.Span{draw.Dim.Text(name + " "), draw.Plain.Text(cells.Unknown)}
		}
		if !ok {
			return []draw.Span{draw.Dim.Text(name + " "), draw.Bad.Text("down")}
		}
		text := "ok"
		if r := cells.RoundTrip(d); r != "" {
			text += " " + r
		}
		return []draw.Span{draw.Dim.Text(name + " "), draw.Good.Text(text)}
	}
	cluster, model := cells.OrUnknown(m.snap.Cluster), cells.OrUnknown(m.known.model)
	parts := []part{
		{[]draw.Span{draw.Strong.Text("dynctl top")}, 6},
		{[]draw.Span{draw.Dim.Text("cluster "), draw.Strong.Text(cells.Clip(cluster, 24, m.glyphs.More))}, 5},
		{[]draw.Span{draw.Dim.Text("model "), draw.Plain.Text(cells.Clip(model, 24, m.glyphs.More))}, 2},
		{store("etcd", f.EtcdOK, f.EtcdRTT), 4},
		{store("nats", f.NATSOK, f.NATSRTT), 3},
	}
	if m.opts.Recording != "" {
		rec := []draw.Span{draw.Bad.Text("REC "), draw.Plain.Text(cells.ClipMiddle(m.opts.Recording, 24, m.glyphs.More))}
		parts = append(parts, part{rec, 7})
	}
	return parts
}

// drawHeader writes what this is, how fresh it is, and the time. The freshness
// never leaves; the clock leaves before the first part does.
func (m *model) drawHeader(a draw.Area, parts []part) {
	fr := m.freshness()
	right := []part{{[]draw.Span{fr.st.Text(fr.text)}, 0}, {[]draw.Span{draw.Dim.Text(m.clock().In(m.opts.Location).Format("15:04:05 MST"))}, 1}}
	all := append(append([]part{}, parts...), right...)
	need := func() int {
		n := 1
		for _, p := range all {
			n += p.width() + 2
		}
		return n
	}
	for need() > a.W() {
		out := -1
		for i, p := range all {
			if p.leave > 0 && (out < 0 || p.leave < all[out].leave) {
				out = i
			}
		}
		if out < 0 {
			break
		}
		all = append(all[:out], all[out+1:]...)
	}
	clock := 0
	if last := all[len(all)-1]; last.leave == 1 {
		clock = last.width() + 1
		a.Spans(a.W()-clock, 0, clock, last.spans)
		all = all[:len(all)-1]
	}
	// The freshness stands at the right, before the clock, so that it stays in
	// place while the values left of it change.
	last := all[len(all)-1]
	x := 1
	for _, p := range all[:len(all)-1] {
		x = a.Spans(x, 0, a.W()-x, p.spans) + 2
	}
	gap := 1
	if clock > 0 {
		gap = 4
	}
	at := max(a.W()-clock-gap-last.width(), min(x, a.W()))
	a.Spans(at, 0, a.W()-clock-at, last.spans)
}

// drawNotice is the line above the footer: a message, or the worst notice.
func (m *model) drawNotice(a draw.Area) {
	text, st := m.noticeText()
	if text != "" {
		a.Spans(1, 0, a.W()-1, []draw.Span{st.Text(text)})
	}
}

func (m *model) noticeText() (string, draw.Style) {
	if m.flash.text != "" && m.now.Before(m.flash.until) {
		return m.flash.text, m.flash.st
	}
	f := &m.snap.Fresh
	switch {
	case !m.have:
		return "", draw.Plain
	case !f.EtcdOK && f.EtcdErr != "":
		return m.glyphs.Degraded + " " + f.EtcdErr, draw.Bad
	case !f.NATSOK && f.NATSErr != "":
		return m.glyphs.Degraded + " " + f.NATSErr, draw.Bad
	case len(m.snap.Notices) > 0:
		text := m.glyphs.Degraded + " " + m.snap.Notices[0]
		if n := len(m.snap.Notices) - 1; n > 0 {
			text += fmt.Sprintf(" (%d more)", n)
		}
		return text, draw.Warn
	}
	return "", draw.Plain
}

// summary is the one line of screens too small for a pane.
func (m *model) summary() string {
	need := fmt.Sprintf("needs %dx%d", minWidth, minHeight)
	fr := m.freshness()
	if !m.have {
		return need + " " + m.glyphs.Dot + " " + fr.text
	}
	return strings.Join([]string{need, cells.OrUnknown(m.snap.Cluster) + " " + fr.text, m.stateSummary(), "queue " + m.depthText()}, " "+m.glyphs.Dot+" ")
}
