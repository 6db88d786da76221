package client

import (
	"slices"
	"time"
)

// recent keeps the last keepEvents values. Adding one has constant amortized cost.
type recent[T any] struct {
	list []T // oldest first; up to twice as long as what is kept
}

func (r *recent[T]) add(v T) {
	if len(r.list) >= 2*keepEvents {
		r.list = append(r.list[:0], r.list[keepEvents:]...)
	}
	r.list = append(r.list, v)
}

// kept returns the values to keep, oldest first.
func (r *recent[T]) kept() []T { return r.list[max(len(r.list)-keepEvents, 0):] }

// replace overwrites the newest value that matches with v.
func (r *recent[T]) replace(match func(T) bool, v T) bool {
	kept := r.kept()
	for i := len(kept) - 1; i >= 0; i-- {
		if match(kept[i]) {
			kept[i] = v
			return true
		}
	}
	return false
}

// newestFirst returns a copy of the kept values, never nil.
func (r *recent[T]) newestFirst() []T {
	out := append([]T{}, r.kept()...)
	slices.Reverse(out)
	return out
}

// historyLen is the number of samples in a history.
const historyLen = 120

// history holds one sample per second, newest last, at whatever interval they arrive. The
// last sample within a second counts; a second without one is a gap.
type history struct {
	samples []*float64
	last    time.Time // the second of the newest sample
}

func (h *history) add(now time.Time, sample *float64) {
	// Rounding tolerates a ticker that is slightly early or late.
	step := int(now.Sub(h.last).Round(time.Second) / time.Second)
	switch {
	case len(h.samples) == 0 || step > historyLen:
		h.samples, h.last = []*float64{sample}, now
		return
	case step <= 0:
		h.samples[len(h.samples)-1] = sample
		return
	}
	for range step - 1 {
		h.samples = append(h.samples, nil)
	}
	h.samples = append(h.samples, sample)
	h.samples = h.samples[max(len(h.samples)-historyLen, 0):]
	h.last = h.last.Add(time.Duration(step) * time.Second)
}
