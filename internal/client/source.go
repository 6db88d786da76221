package client

import (
	"context"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Source delivers what is known of a cluster and carries out what an operator
// asks for. Live clusters and recordings both are sources.
type Source interface {
	// Snapshots delivers snapshots; the channel holds only the newest, so a slow
	// reader skips some and never slows the cluster. It is closed by Close.
	Snapshots() <-chan cluster.Snapshot
	// SetInterval changes how often snapshots are made.
	SetInterval(d time.Duration)
	// Inspect has the snapshots from now on hold the activity of a worker, of none with
	// an empty name. It does not wait. A recording has the activities that were recorded.
	Inspect(worker string)
	// Act carries out one action and returns when it is accepted, not when it is
	// finished; progress shows in the snapshots.
	Act(ctx context.Context, a Action) error
	// ReadOnly says why actions are refused; empty when they are not.
	ReadOnly() string
	Close() error
}

// MaxSpeed is how many times as fast as it was recorded a recording can be played.
const MaxSpeed = 1000

// Playback is a source that plays a recording: it can be held and wound. Orders are
// taken up at once and show in the next snapshot; none of the methods waits.
type Playback interface {
	Source
	// Hold stops playing, or goes on.
	Hold(held bool)
	// Step shows the n-th next snapshot, or one before if n is negative, and holds.
	Step(n int)
	// Seek winds by so much recorded time, backwards if it is negative.
	Seek(by time.Duration)
	// SetSpeed plays that many times as fast as was recorded, at most MaxSpeed.
	SetSpeed(speed float64)
}

// ActionKind names what an operator can do to a worker.
type ActionKind string

// Actions.
const (
	ActDrain  ActionKind = "drain"
	ActResume ActionKind = "resume"
)

// Action is one order for one worker.
type Action struct {
	Kind     ActionKind
	Worker   string
	Deadline time.Duration // drain: 0 means none
}
