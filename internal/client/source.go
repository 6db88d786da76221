package client

import (
	"context"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Source delivers snapshots of a cluster and carries out an operator's actions. [Live]
// and recordings implement it.
type Source interface {
	// Snapshots returns a channel that holds only the newest snapshot. A slow reader
	// skips some and never slows the cluster down. Close closes the channel.
	Snapshots() <-chan cluster.Snapshot
	// SetInterval changes how often snapshots are made.
	SetInterval(d time.Duration)
	// Inspect adds the activity of a worker to the following snapshots; an empty name
	// ends that. It does not wait. A recording shows the activities that were recorded.
	Inspect(worker string)
	// Log calls write with the end of a log, at most tail lines, and then with what is
	// added, in order. name is a worker, or a node for the log of its agent. It returns when
	// ctx ends or write fails, or when the log cannot be read any more.
	Log(ctx context.Context, name string, tail int, write func([]byte) error) error
	// Act carries out one action. It returns when the order is accepted, not when the
	// work is finished. Snapshots show the progress.
	Act(ctx context.Context, a Action) error
	// ReadOnly returns the reason why actions are refused; empty when they are allowed.
	ReadOnly() string
	Close() error
}

// MaxSpeed is the highest speed of playback, as a multiple of the recorded speed.
const MaxSpeed = 1000

// Playback is a source that plays a recording and can pause and seek. None of its methods
// waits; the next snapshot shows their effect.
type Playback interface {
	Source
	// Hold pauses playback, or continues it.
	Hold(held bool)
	// Step moves n snapshots forward, or backward if n is negative, and pauses.
	Step(n int)
	// Seek moves by an amount of recorded time, backward if it is negative.
	Seek(by time.Duration)
	// SetSpeed sets the speed as a multiple of the recorded speed, at most MaxSpeed.
	SetSpeed(speed float64)
}

// ActionKind names an order that an operator can give.
type ActionKind string

// The kinds of actions. The first three are about one worker.
const (
	ActDrain      ActionKind = "drain"
	ActResume     ActionKind = "resume"
	ActRestart    ActionKind = "restart"
	ActRestartAll ActionKind = "restart --rolling"
	ActScale      ActionKind = "scale"
	ActSet        ActionKind = "set"
)

// Action is an order for one worker, or for the cluster.
type Action struct {
	Kind           ActionKind
	Worker         string         // empty for the cluster
	Deadline       time.Duration  // drain: 0 means no limit
	Workers        cluster.Counts // scale
	Pool           string         // scale: empty for the main pool
	Setting, Value string         // set: as dynctl set takes them
}

// Text is the action in the words of the command line.
func (a Action) Text() string {
	text := string(a.Kind)
	if a.Worker != "" {
		text += " " + a.Worker
	}
	if a.Pool != "" {
		text += " --pool " + a.Pool
	}
	if len(a.Workers) > 0 {
		text += " " + a.Workers.String()
	}
	if a.Setting != "" {
		text += " " + a.Setting + "=" + a.Value
	}
	return text
}
