package tui

import (
	"time"

	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/moment"
)

// feed receives snapshots and the time. It holds snapshots while the screen is frozen,
// knows how old they are, and keeps the moment that everything is drawn from.
type feed struct {
	shown    *moment.Moment
	now      time.Time // by ticks; never read from a clock here
	interval time.Duration
	received time.Time // when the snapshot on the screen came
	ended    bool      // the source closed
	play     *playback // nil while live

	paused   bool
	pausedAt time.Time
	pending  *snapshotMsg // the newest while paused

	state freshness // of the moment
}

// take shows a snapshot, or holds it while the screen is frozen; it reports whether another
// one is shown now.
func (f *feed) take(msg snapshotMsg) bool {
	if msg.at.After(f.now) {
		f.now = msg.at
	}
	if f.paused {
		f.pending = &msg
		return false
	}
	f.shown.Take(msg.snap)
	f.received = msg.at
	return true
}

// freeze stops the screen, or lets it go on; it reports whether another snapshot is shown now.
func (f *feed) freeze() bool {
	if !f.paused {
		f.paused, f.pausedAt = true, f.now
		return false
	}
	f.paused = false
	msg := f.pending
	f.pending = nil
	return msg != nil && f.take(*msg)
}

// sync brings the moment up to the time on the screen.
func (f *feed) sync() {
	m := f.shown
	m.Age = f.age()
	m.Recorded = f.play != nil
	m.Frozen, m.Kept = f.paused, f.now.Sub(f.received)
	f.state = f.freshness()
	m.Stale = f.state.kind == stale
	m.Waiting = f.state.text
	// Nobody knows how leases fare while the data is stale, so they stand still from then on.
	m.Countdown = 0
	if m.Snap.Fresh.Live() {
		m.Countdown = min(m.Age, f.silence())
	}
}

// age returns the age of the snapshot on the screen, by the clock of the snapshot.
func (f *feed) age() time.Duration {
	if !f.shown.Have {
		return 0
	}
	now := f.now
	if f.paused {
		now = f.pausedAt
	}
	age := max(now.Sub(f.received), 0)
	switch {
	case f.play == nil:
		return age
	case f.play.still(&f.shown.Snap):
		return 0
	}
	return time.Duration(float64(age) * f.play.Speed)
}

// silentAfter is the number of intervals without a snapshot that make the screen stale,
// even if the source does not report it.
const silentAfter = 5

// silence returns the time without a snapshot after which the screen is marked stale.
func (f *feed) silence() time.Duration { return max(silentAfter*f.interval, 3*time.Second) }

// clock is the time in the header: that of the recording in a replay.
func (f *feed) clock() time.Time {
	if f.play != nil && f.shown.Have {
		return f.shown.At()
	}
	return f.now
}

// counting reports whether lease times, with their tenths of seconds, change by themselves.
func (f *feed) counting() bool {
	m := f.shown
	return m.Have && (f.state.kind == fresh || f.state.kind == replay && !f.play.still(&m.Snap)) &&
		(len(m.Snap.Leases) > 0 || m.Known.Leases)
}

// intervals are the steps of + and -.
func intervals() []time.Duration {
	return []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute}
}

// step is the interval above or below the present one; ok is false at the end.
func (f *feed) step(up bool) (d time.Duration, ok bool) {
	return nextStep(intervals(), f.interval, up)
}

// nextStep is the step above or below a value; ok is false at the end.
func nextStep[T time.Duration | float64](steps []T, now T, up bool) (T, bool) {
	for i := range steps {
		v := steps[i]
		if !up {
			v = steps[len(steps)-1-i]
		}
		if up && v > now || !up && v < now {
			return v, true
		}
	}
	return now, false
}

// cannotStep says why the pace cannot go up or down.
func (f *feed) cannotStep(faster bool) string {
	if f.play != nil {
		return f.play.cannotSpeed(faster)
	}
	if _, ok := f.step(!faster); ok {
		return ""
	}
	if faster {
		return "every " + cells.Interval(f.interval) + " is the shortest interval"
	}
	return "every " + cells.Interval(f.interval) + " is the longest interval"
}
