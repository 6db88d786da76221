package simulate

import (
	"slices"
	"time"
)

// device computes one step at a time of its workers. Those that share it have the turns of the CPU
// engine (internal/engine/cpu, type turns): steps that only decode go before steps with chunks of
// prompts, and those get back the time that decode steps took while they waited. A step with
// chunks lets others go first at any moment; the engine does so within a millisecond.
type device struct {
	s       *simulation
	decode  []*worker // that wait for it, in order of arrival
	prefill []*worker
	holder  *worker
	since   time.Duration // when the holder got the device, or its time was last accounted
	until   time.Duration // a step with chunks keeps the device until then
	owed    time.Duration // earned by steps with chunks that waited
	due     time.Duration // when the holder leaves it; plans for other times are void
	leave   func() error
}

func (s *simulation) newDevice() *device {
	d := &device{s: s}
	d.leave = func() error {
		if d.holder == nil || s.now != d.due {
			return nil
		}
		return d.end()
	}
	return d
}

// minSlice is the least time owed with which a step with chunks goes first.
const minSlice = time.Millisecond

// compute has a worker's step of so long take its turn. w.done is called at its end.
func (d *device) compute(w *worker, took time.Duration) {
	w.left = took
	if w.chunks {
		d.prefill = append(d.prefill, w)
	} else {
		d.decode = append(d.decode, w)
	}
	d.turn()
}

// turn gives the device to the next step, if it is free, and plans what ends the present turn.
func (d *device) turn() {
	if d.holder == nil {
		queue := &d.decode
		if len(d.decode) == 0 || len(d.prefill) > 0 && d.owed >= minSlice {
			queue = &d.prefill
		}
		if len(*queue) == 0 {
			return
		}
		d.holder = (*queue)[0]
		*queue = slices.Delete(*queue, 0, 1)
		d.since, d.until = d.s.now, d.s.now+d.owed
	}
	due := d.since + d.holder.left
	if d.holder.chunks && len(d.decode) > 0 {
		due = min(due, max(d.until, d.s.now))
	}
	if due != d.due {
		d.due = due
		d.s.at(due, d.leave)
	}
}

// end takes the device from its holder, whose step has ended or lets others go first.
func (d *device) end() error {
	w, used := d.holder, d.s.now-d.since
	switch {
	case w.chunks:
		d.owed = max(0, d.owed-used)
	case len(d.prefill) > 0:
		d.owed += used
	}
	w.left -= used
	d.holder = nil
	if w.left > 0 {
		d.prefill = slices.Insert(d.prefill, 0, w) // its place is before others
		d.turn()
		return nil
	}
	d.turn()
	return w.done()
}

// left returns how much of its present step is still to be computed for a worker.
func (d *device) left(w *worker, now time.Duration) time.Duration {
	if w == d.holder {
		return w.left - (now - d.since)
	}
	return w.left
}

// deviceOfNext returns the device of a new worker: one of its own, or the first one of the fewest workers of those that
// workers share.
func (s *simulation) deviceOfNext() *device {
	if len(s.devices) == 0 {
		return s.newDevice()
	}
	of := make(map[*device]int, len(s.devices))
	for _, w := range s.workers {
		of[w.device]++
	}
	return slices.MinFunc(s.devices, func(a, b *device) int { return of[a] - of[b] })
}
