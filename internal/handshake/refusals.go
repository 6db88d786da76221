package handshake

import (
	"log/slog"
	"sync"
	"time"
)

// Refusals logs refused connections without letting them fill a disk. It logs a burst of
// a few, then one at intervals, with the number of those left out. The zero Refusals is
// ready.
type Refusals struct {
	mu    sync.Mutex
	spent int // log entries of refusalBurst that are used up
	since time.Time
	left  int // not logged since the last log entry
}

const (
	refusalBurst = 5
	refusalPause = 10 * time.Second // until one more may be logged
)

// Warn logs a refusal.
func (r *Refusals) Warn(log *slog.Logger, msg string, args ...any) {
	r.mu.Lock()
	if now := time.Now(); r.spent > 0 {
		if back := int(now.Sub(r.since) / refusalPause); back > 0 {
			r.spent = max(0, r.spent-back)
			r.since = now
		}
	} else {
		r.since = now
	}
	if r.spent >= refusalBurst {
		r.left++
		r.mu.Unlock()
		return
	}
	r.spent++
	left := r.left
	r.left = 0
	r.mu.Unlock()
	if left > 0 {
		args = append(args, "more_since_the_last", left)
	}
	log.Warn(msg, args...) //nolint:sloglint // the caller passes a constant message
}
