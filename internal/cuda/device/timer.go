package device

import (
	"context"
	"fmt"
	"time"
)

// Timer measures work of a stream by the clock of the device. It can be used again and
// again, for one measurement at a time.
type Timer struct{ begin, end *Event }

// NewTimer makes a timer, which lives until the scope is closed.
func (s *Scope) NewTimer() (*Timer, error) {
	d := s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := s.usable(); err != nil {
		return nil, err
	}
	var marks [2]*Event
	for i := range marks {
		h, err := d.driver.EventCreateWithTiming(d.index)
		if err != nil {
			return nil, fmt.Errorf("make a timer: %w", err)
		}
		marks[i] = &Event{d: d, handle: h}
		s.events = append(s.events, marks[i])
	}
	return &Timer{marks[0], marks[1]}, nil
}

// Start begins behind what is in a stream.
func (t *Timer) Start(s *Stream) error { return s.Record(t.begin) }

// Stop ends behind what is in the stream.
func (t *Timer) Stop(s *Stream) error { return s.Record(t.end) }

// Elapsed waits until the work has ended, as [Event.Wait] does, and returns how long it
// took: from when the device was done with all before Start, to when it was done with all
// before Stop.
func (t *Timer) Elapsed(ctx context.Context) (time.Duration, error) {
	if err := t.end.Wait(ctx); err != nil {
		return 0, err
	}
	d := t.end.d
	took, err := d.driver.EventElapsedTime(d.index, t.begin.handle, t.end.handle)
	return took, d.Check(err)
}
