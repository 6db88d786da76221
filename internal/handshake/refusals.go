package handshake

import (
	"log/slog"
	"sync"
	"time"
)

// Refusals logs what strangers do, without letting them fill a disk: a few at once, then
// one in a while, which says how many were left out. The zero Refusals is ready.
type Refusals struct {
	mu    sync.Mutex
	spent int // of refusalBurst
	since time.Time
	left  int // not logged since the last one that was
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
	log.Warn(msg, args...) //nolint:sloglint // what was refused is the caller's to say
}
