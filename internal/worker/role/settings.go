package role

import (
	"time"

	"github.com/dynctl/dynctl/internal/router"
)

// Settings are settings that change at run time, without a restart.
type Settings struct {
	Prefill router.PrefillLimits
	// RemoteTimeout limits one remote prefill, from enqueueing to the last block.
	RemoteTimeout time.Duration
}

// Limits bound hand-overs. ../DESIGN.md says what each wait is for.
type Limits struct {
	Leaving  int // sequences that one worker moves away at once
	Arriving int // hand-overs that one worker takes in at once, parked sequences among them
	Asked    int // workers that are asked for room at once

	Ask    time.Duration // for a worker's room, and for its answer to an offer
	Whole  time.Duration // from the offer to the commit
	Pause  time.Duration // that a sequence stands still, from the pause to the commit
	Parked time.Duration // that a sequence waits for its frontend
	Again  time.Duration // from a refusal or failure to the next try
}

// DefaultLimits returns the limits of every worker outside tests.
func DefaultLimits() Limits {
	return Limits{
		Leaving: 4, Arriving: 64, Asked: 8,
		Ask: time.Second, Whole: 30 * time.Second, Pause: 2 * time.Second, Parked: 10 * time.Second,
		Again: 250 * time.Millisecond,
	}
}
