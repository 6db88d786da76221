package device_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/cuda/driver"
)

// A timer measures what stands between its ends, again and again.
func TestTimer(t *testing.T) {
	r := newRig(t)
	timer, err := r.NewTimer()
	r.ok(err)
	region := r.take(64)
	r.ok(r.decode.Set(region, 0)) // before the timer
	for works := range 3 {
		r.ok(timer.Start(r.decode))
		for range works {
			r.ok(r.decode.Set(region, 1))
		}
		r.ok(timer.Stop(r.decode))
		if took, err := timer.Elapsed(r.ctx); err != nil || took != time.Duration(works)*time.Microsecond {
			t.Errorf("%d works took %s, %v", works, took, err)
		}
	}
	r.ok(timer.Start(r.decode), r.decode.Set(region, 2), timer.Stop(r.decode))
	ended, cancel := context.WithCancel(r.ctx)
	cancel()
	if _, err := timer.Elapsed(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Elapsed() without time = %v", err)
	}
	r.ok(r.close())
	if _, err := r.NewTimer(); !errors.Is(err, device.ErrClosed) {
		t.Errorf("NewTimer() of a closed device = %v", err)
	}
}

func TestTimerOfALostDevice(t *testing.T) {
	r := newRig(t)
	timer, err := r.NewTimer()
	r.ok(err, timer.Start(r.decode), timer.Stop(r.decode))
	r.fake.Lose(0, driver.LaunchFailed)
	if _, err := timer.Elapsed(r.ctx); !errors.Is(err, device.ErrLost) {
		t.Errorf("Elapsed() = %v", err)
	}
	r.ok(r.Close(r.ctx))
}
