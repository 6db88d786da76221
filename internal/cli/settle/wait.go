package settle

import "time"

// LookEvery is the interval at which a waiting command checks the clock.
const LookEvery = 100 * time.Millisecond

// patience is the time for which a worker may find no device while nothing changes by itself.
const patience = 2 * time.Second

// Patience with a state that may pass: it counts from when it began.
type Patience struct{ since time.Time }

// Over reports whether the state, which lasts or has ended, has lasted for too long.
func (p *Patience) Over(lasts bool) bool {
	switch {
	case !lasts:
		p.since = time.Time{}
	case p.since.IsZero():
		p.since = time.Now()
	}
	return lasts && time.Since(p.since) > patience
}
