package settle

import "time"

// LookEvery is how often a waiting command looks at the clock.
const LookEvery = 100 * time.Millisecond

// patience is how long a worker may find no place while nothing changes by itself.
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
