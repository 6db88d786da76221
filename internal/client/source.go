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
	// Act carries out one action and returns when it is accepted, not when it is
	// finished; progress shows in the snapshots.
	Act(ctx context.Context, a Action) error
	// ReadOnly says why actions are refused; empty when they are not.
	ReadOnly() string
	Close() error
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
