package device

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dynctl/dynctl/internal/cuda/driver"
)

// Scope owns the resources of one user of a device: weights, or an engine. It ends with its
// user, while the device goes on.
type Scope struct {
	d *Device

	// All under the device's lock.
	closed    bool
	sealed    bool
	recording bool // a graph
	streams   []*Stream
	events    []*Event
	graphs    []*Graph
	arenas    []*Arena
	pinned    []*Pinned
}

// NewScope begins a scope. Its user closes it, or the device does when it is closed.
func (d *Device) NewScope() (*Scope, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable(); err != nil {
		return nil, err
	}
	s := &Scope{d: d}
	d.scopes = append(d.scopes, s)
	return s, nil
}

// usable refuses calls on what is lost or closed, with the lock held.
func (s *Scope) usable() error {
	if err := s.d.usable(); err != nil {
		return err
	}
	if s.closed {
		return ErrClosed
	}
	return nil
}

func (s *Scope) allocating() error {
	switch {
	case s.sealed:
		return ErrSealed
	case s.recording:
		return fmt.Errorf("%w: a graph is recorded", driver.ErrInvalid)
	}
	return s.usable()
}

// Seal ends the start: no memory is allocated in the scope after it.
func (s *Scope) Seal() {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.sealed = true
}

// Close waits until the work in the scope's streams has ended, at most until ctx ends, and
// frees everything that was made in it. While work still runs nothing is freed: the error
// says so, and Close may be called again. Of a lost device nothing can be freed. Nobody
// may use what was made in the scope at the same time or later.
func (s *Scope) Close(ctx context.Context) error {
	s.d.mu.Lock()
	s.closed = true
	s.d.mu.Unlock()
	if s.d.Err() == nil {
		if err := s.drain(ctx); err != nil {
			return err
		}
	}
	return s.free()
}

// drain waits until the scope's streams are empty.
func (s *Scope) drain(ctx context.Context) error {
	s.d.mu.Lock()
	streams := slices.Clone(s.streams)
	s.d.mu.Unlock()
	for _, stream := range streams {
		if err := stream.drain(ctx); err != nil {
			if s.d.Err() != nil {
				return err
			}
			return fmt.Errorf("close device %d: nothing is freed: %w", s.d.index, err)
		}
	}
	return nil
}

// free frees everything, and ends the scope.
func (s *Scope) free() error {
	d := s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	if d.err == nil {
		for _, g := range s.graphs {
			errs = append(errs, d.driver.GraphDestroy(d.index, g.handle))
		}
		for _, t := range s.streams {
			errs = append(errs, d.driver.EventDestroy(d.index, t.end), d.driver.StreamDestroy(d.index, t.handle))
		}
		for _, e := range s.events {
			errs = append(errs, d.driver.EventDestroy(d.index, e.handle))
		}
		for _, a := range s.arenas {
			errs = append(errs, d.driver.MemFree(d.index, a.base))
		}
		for _, p := range s.pinned {
			errs = append(errs, d.driver.MemFreeHost(d.index, p.mem))
		}
	}
	s.streams, s.events, s.graphs, s.arenas, s.pinned = nil, nil, nil, nil, nil
	if s != d.Scope {
		d.scopes = slices.DeleteFunc(d.scopes, func(o *Scope) bool { return o == s })
	}
	return errors.Join(errs...)
}
