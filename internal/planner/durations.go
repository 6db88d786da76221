package planner

import (
	"slices"
	"time"
)

// remembered is how many durations of a kind count. Older ones say little of the machines of today.
const remembered = 32

// prudent is the quantile of durations that plans allow for.
const prudent = 0.9

// Durations learns how long actions take, by kind. The zero value knows nothing.
type Durations struct {
	seen map[ActionKind][]time.Duration // oldest first
}

// Add records an action that ended. Negative durations are errors of a clock and do not count.
func (d *Durations) Add(kind ActionKind, took time.Duration) {
	if took < 0 {
		return
	}
	if d.seen == nil {
		d.seen = map[ActionKind][]time.Duration{}
	}
	all := append(d.seen[kind], took)
	d.seen[kind] = slices.Clone(all[max(0, len(all)-remembered):])
}

// Expect returns the 90th percentile of what was seen, by rank: one slow action among ten
// does not count. Until three were seen it is the larger of estimate and those.
func (d *Durations) Expect(kind ActionKind, estimate time.Duration) time.Duration {
	all := slices.Sorted(slices.Values(d.seen[kind]))
	if len(all) < 3 {
		if len(all) == 0 {
			return estimate
		}
		return max(estimate, all[len(all)-1])
	}
	return all[int(prudent*float64(len(all)-1))]
}

// Count returns how many actions of a kind are remembered.
func (d *Durations) Count(kind ActionKind) int { return len(d.seen[kind]) }
