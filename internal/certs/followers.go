package certs

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/config"
)

// Followers are the followers of one program. A nil *Followers follows files, too, and
// remembers none.
type Followers struct {
	mu  sync.Mutex
	all []*Follower
}

// Follow is like the function [Follow]; All then lists the follower.
func (f *Followers) Follow(files config.TLSFiles, log *slog.Logger) (*Follower, error) {
	one, err := Follow(files, log)
	if err == nil && f != nil {
		f.mu.Lock()
		f.all = append(f.all, one)
		f.mu.Unlock()
	}
	return one, err
}

// All returns the followers in the order in which they began.
func (f *Followers) All() []*Follower {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.all)
}

// soon is the longest time before its end at which a certificate needs attention. It is a
// fifth of the certificate's life if that is shorter.
const soon = 14 * 24 * time.Hour

// Problem says what an operator has to do about the certificate; empty for nothing.
func (f *Follower) Problem() string {
	c, now := f.current.Load(), f.now()
	ends := c.ends.UTC().Format(time.RFC3339)
	switch r := f.refused.Load(); {
	case r != nil:
		return fmt.Sprintf("the changed certificate of %s cannot be used, the one before ends at %s: %v", f.files.Named(), ends, r.err)
	case c.ends.IsZero():
	case !now.Before(c.ends):
		return fmt.Sprintf("the certificate of %s ended at %s; replace its files", f.files.Named(), ends)
	case c.ends.Sub(now) < c.notice():
		return fmt.Sprintf("the certificate of %s ends at %s; replace its files", f.files.Named(), ends)
	}
	return ""
}

// notice is the time before the end at which the operator is told.
func (c *contents) notice() time.Duration {
	if c.begins.IsZero() {
		return soon
	}
	return min(soon, c.ends.Sub(c.begins)/5)
}
