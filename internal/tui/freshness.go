package tui

import (
	"cmp"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
)

// freshKind is the degree to which the screen can be trusted.
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

// old reports whether values are drawn faint.
func (s freshness) old() bool { return s.kind == stale || s.kind == closed }

// freshness looks at the snapshot and at how long ago it came.
func (f *feed) freshness() freshness {
	m := f.shown
	live := m.Snap.Fresh.Live()
	switch {
	case f.paused:
		return freshness{frozen, "PAUSED " + cells.Age(f.now.Sub(f.pausedAt)), draw.Warn}
	case !m.Have && f.ended:
		return freshness{closed, "ENDED: no snapshot came", draw.Bad}
	case !m.Have:
		return freshness{waiting, "WAITING for the first snapshot", draw.Dim}
	case f.ended:
		return freshness{closed, "ENDED " + cells.Age(m.Age) + " ago", draw.Bad}
	case f.play != nil && !live:
		return freshness{stale, f.play.text(m) + " STALE " + cells.Age(m.At().Sub(m.Snap.Fresh.StaleSince)), draw.Bad}
	case f.play != nil:
		return freshness{replay, f.play.text(m), draw.Focused}
	case !live:
		return freshness{stale, f.staleText(), draw.Bad}
	case m.Age >= f.silence():
		return freshness{stale, fmt.Sprintf("STALE %s: no snapshot arrives", cells.Age(m.Age)), draw.Bad}
	}
	return freshness{fresh, "LIVE every " + cells.Interval(f.interval), draw.Good}
}

// staleText says for how long, why, and what happens next.
func (f *feed) staleText() string {
	at, state := f.shown.At(), &f.shown.Snap.Fresh
	why, store := "no new data", cmp.Or(state.Store, "etcd")
	switch {
	case !state.EtcdOK && !state.NATSOK:
		why = store + " and nats unreachable"
	case !state.EtcdOK:
		why = store + " unreachable"
	case !state.NATSOK:
		why = "nats unreachable"
	}
	text := fmt.Sprintf("STALE %s: %s", cells.Age(at.Sub(state.StaleSince)), why)
	if left := state.NextAttempt.Sub(at); !state.NextAttempt.IsZero() && left > 0 {
		text += ", retry in " + cells.Age(left+time.Second-1)
	} else if !state.NextAttempt.IsZero() {
		text += ", retrying"
	}
	return text
}
