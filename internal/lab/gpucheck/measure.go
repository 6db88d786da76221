package gpucheck

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/cuda/device"
)

const (
	iterations = 20 // of a sample at least, each with other memory
	sampled    = 5  // samples, of which the median counts
)

// The time that a sample takes at least, as far as that takes no more than maxReplays; and
// for how long the device is kept busy before.
const (
	sampleTime = 10 * time.Millisecond
	maxReplays = 20
	warmUp     = 100 * time.Millisecond
)

// measure measures what op puts into the stream, which gets the number of its iteration:
// iterations of it are a graph, so that the host does not limit.
func (r *rig) measure(ctx context.Context, s *device.Scope, op func(i int) error) (finding, error) {
	n := iterations
	if r.spec.Small {
		n = 2
	}
	if err := op(0); err != nil { // what is loaded late must not be while a graph is recorded
		return finding{}, err
	}
	if err := r.settle(ctx); err != nil {
		return finding{}, err
	}
	g, err := s.Capture(r.stream, func() error {
		for i := range n {
			if err := op(i); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return finding{}, err
	}
	return r.samples(ctx, n, func() error { return r.stream.Replay(g) })
}

// measureEager measures op launch by launch, as the host can.
func (r *rig) measureEager(ctx context.Context, op func(i int) error) (finding, error) {
	n := 10 * iterations
	if r.spec.Small {
		n = 2
	}
	return r.samples(ctx, n, func() error {
		for i := range n {
			if err := op(i); err != nil {
				return err
			}
		}
		return nil
	})
}

// samples measures work of n operations again and again. The finding has seconds of one.
func (r *rig) samples(ctx context.Context, n int, work func() error) (f finding, err error) {
	once := func(replays int) (took time.Duration, err error) {
		if err := r.timer.Start(r.stream); err != nil {
			return 0, err
		}
		for range replays {
			if err := work(); err != nil {
				return 0, err
			}
		}
		if err := r.timer.Stop(r.stream); err != nil {
			return 0, err
		}
		err = r.wait(ctx, func(ctx context.Context) error {
			took, err = r.timer.Elapsed(ctx)
			return err
		})
		return took, err
	}
	first, err := once(1)
	if err != nil {
		return f, err
	}
	replays := 1
	if first > 0 && !r.spec.Small {
		replays = int(min(max(sampleTime/first, 1), maxReplays))
		for busy := first; busy < warmUp; {
			took, err := once(replays)
			if err != nil {
				return f, err
			}
			busy += max(took, time.Millisecond)
		}
	}
	for range sampled {
		took, err := once(replays)
		if err != nil {
			return f, err
		}
		f.samples = append(f.samples, took.Seconds()/float64(replays*n))
	}
	return f, f.median()
}

// median makes the figure of samples in seconds, which become microseconds.
func (f *finding) median() error {
	sorted := slices.Sorted(slices.Values(f.samples))
	if f.took = sorted[len(sorted)/2]; f.took <= 0 {
		return errors.New("it took no time: the clock does not advance")
	}
	for i, s := range f.samples {
		f.samples[i] = s * 1e6
	}
	f.figure, f.unit = f.took*1e6, "us"
	return nil
}

// rate makes the figure one of amounts in a second; samples stay microseconds.
func (f *finding) rate(amount float64, unit string) {
	if f.took > 0 {
		f.also = map[string]float64{"us": f.took * 1e6}
		f.figure, f.unit = amount/f.took, unit
	}
}

// cost says how many bytes an operation must move, and how many multiplications and
// additions it must do.
func (f *finding) cost(rates *Rates, bytes, operations float64) {
	if f.took <= 0 {
		return
	}
	f.also = map[string]float64{"gb_per_s": bytes / f.took / 1e9}
	if operations > 0 {
		f.also["tflop_per_s"] = operations / f.took / 1e12
	}
	if rates == nil {
		return
	}
	f.least = bytes / rates.BytesPerSecond
	if rates.FLOPPerSecond > 0 {
		f.least = max(f.least, operations/rates.FLOPPerSecond)
	} else if operations > 100*bytes {
		f.least = 0 // arithmetic limits, and nobody knows how fast it may be
	}
}
