package tui

import (
	"fmt"
	"strings"
	"time"
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
	st   style
}

// silentAfter is how many intervals without a snapshot make the screen stale by
// itself, should the source not say so.
const silentAfter = 5

// freshness looks at the snapshot and at how long ago it came.
func (m *model) freshness() freshness {
	f := &m.snap.Fresh
	every := intervalText(m.interval)
	switch {
	case m.paused:
		return freshness{frozen, "PAUSED " + age(m.now.Sub(m.pausedAt)), warn}
	case !m.have && m.ended:
		return freshness{closed, "ENDED: no snapshot came", bad}
	case !m.have:
		return freshness{waiting, "WAITING for the first snapshot", dim}
	case m.ended:
		return freshness{closed, "ENDED " + age(m.since()) + " ago", bad}
	case m.play != nil && !f.Live():
		return freshness{stale, m.playText() + " STALE " + age(m.at().Sub(f.StaleSince)), bad}
	case m.play != nil:
		return freshness{replay, m.playText(), focused}
	case !f.Live():
		return freshness{stale, m.staleText(), bad}
	case m.since() >= m.silence():
		return freshness{stale, fmt.Sprintf("STALE %s: no snapshot arrives", age(m.since())), bad}
	}
	return freshness{fresh, "LIVE every " + every, good}
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
	text := fmt.Sprintf("STALE %s: %s", age(m.at().Sub(f.StaleSince)), why)
	if left := f.NextAttempt.Sub(m.at()); !f.NextAttempt.IsZero() && left > 0 {
		text += ", retry in " + age(left+time.Second-1)
	} else if !f.NextAttempt.IsZero() {
		text += ", retrying"
	}
	return text
}

// part is a piece of the header; the lowest leave goes first.
type part struct {
	spans []span
	leave int // 0 never
}

func (p part) width() int { return spansWidth(p.spans) }

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
	store := func(name string, ok bool, d time.Duration) []span {
		if !m.have {
			return []span{{name + " ", dim}, {unknown, plain}}
		}
		if !ok {
			return []span{{name + " ", dim}, {"down", bad}}
		}
		text := "ok"
		if r := rtt(d); r != "" {
			text += " " + r
		}
		return []span{{name + " ", dim}, {text, good}}
	}
	cluster, model := orUnknown(m.snap.Cluster), orUnknown(m.known.model)
	parts := []part{
		{[]span{{"dynctl top", strong}}, 6},
		{[]span{{"cluster ", dim}, {clip(cluster, 24, m.glyphs.more), strong}}, 5},
		{[]span{{"model ", dim}, {clip(model, 24, m.glyphs.more), plain}}, 2},
		{store("etcd", f.EtcdOK, f.EtcdRTT), 4},
		{store("nats", f.NATSOK, f.NATSRTT), 3},
	}
	if m.opts.Recording != "" {
		rec := []span{{"REC ", bad}, {clipMiddle(m.opts.Recording, 24, m.glyphs.more), plain}}
		parts = append(parts, part{rec, 7})
	}
	return parts
}

// drawHeader writes what this is, how fresh it is, and the time. The freshness
// never leaves; the clock leaves before the first part does.
func (m *model) drawHeader(a area, parts []part) {
	fr := m.freshness()
	right := []part{{[]span{{fr.text, fr.st}}, 0}, {[]span{{m.clock().In(m.opts.Location).Format("15:04:05 MST"), dim}}, 1}}
	all := append(append([]part{}, parts...), right...)
	need := func() int {
		n := 1
		for _, p := range all {
			n += p.width() + 2
		}
		return n
	}
	for need() > a.w() {
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
		a.spans(a.w()-clock, 0, clock, last.spans)
		all = all[:len(all)-1]
	}
	// The freshness stands at the right, before the clock, so that it stays in
	// place while the values left of it change.
	last := all[len(all)-1]
	x := 1
	for _, p := range all[:len(all)-1] {
		x = a.spans(x, 0, a.w()-x, p.spans) + 2
	}
	gap := 1
	if clock > 0 {
		gap = 4
	}
	at := max(a.w()-clock-gap-last.width(), min(x, a.w()))
	a.spans(at, 0, a.w()-clock-at, last.spans)
}

// drawNotice is the line above the footer: a message, or the worst notice.
func (m *model) drawNotice(a area) {
	text, st := m.noticeText()
	if text != "" {
		a.spans(1, 0, a.w()-1, []span{{text, st}})
	}
}

func (m *model) noticeText() (string, style) {
	if m.flash.text != "" && m.now.Before(m.flash.until) {
		return m.flash.text, m.flash.st
	}
	f := &m.snap.Fresh
	switch {
	case !m.have:
		return "", plain
	case !f.EtcdOK && f.EtcdErr != "":
		return m.glyphs.degraded + " " + f.EtcdErr, bad
	case !f.NATSOK && f.NATSErr != "":
		return m.glyphs.degraded + " " + f.NATSErr, bad
	case len(m.snap.Notices) > 0:
		text := m.glyphs.degraded + " " + m.snap.Notices[0]
		if n := len(m.snap.Notices) - 1; n > 0 {
			text += fmt.Sprintf(" (%d more)", n)
		}
		return text, warn
	}
	return "", plain
}

// summary is the one line of screens too small for a pane.
func (m *model) summary() string {
	need := fmt.Sprintf("needs %dx%d", minWidth, minHeight)
	fr := m.freshness()
	if !m.have {
		return need + " " + m.glyphs.dot + " " + fr.text
	}
	return strings.Join([]string{need, orUnknown(m.snap.Cluster) + " " + fr.text, m.stateSummary(), "queue " + m.depthText()}, " "+m.glyphs.dot+" ")
}
