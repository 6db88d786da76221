package device_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/lab/cuda/fake"
)

// Jobs run one after the other, in the order in which they came.
func TestRunIsInOrder(t *testing.T) {
	r := newRig(t)
	var got []int
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 100 {
				if err := r.Run(r.ctx, func() error { got = append(got, i); return nil }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	slices.Sort(got) // the race detector sees whether two ran at a time
	for i := range 8 {
		if n := len(slices.DeleteFunc(slices.Clone(got), func(v int) bool { return v != i })); n != 100 {
			t.Errorf("%d jobs of %d ran", n, i)
		}
	}
	wrong := errors.New("wrong")
	if err := r.Run(r.ctx, func() error { return wrong }); err != wrong {
		t.Errorf("Run() = %v", err)
	}
	r.ok(r.close())
}

// Who waits for the thread can leave; who waits for its job cannot.
func TestRunIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := device.Open(fake.New(fake.Options{}), 0)
		if err != nil {
			t.Fatal(err)
		}
		ctx, leave := context.WithCancel(t.Context())
		gate := make(chan struct{})
		results := make(chan error, 1000)
		go func() { results <- d.Run(ctx, func() error { <-gate; return nil }) }()
		synctest.Wait() // it runs
		ran := 0
		const waiting = 400 // more than there is room for
		for range waiting {
			go func() { results <- d.Run(ctx, func() error { ran++; return nil }) }()
		}
		synctest.Wait()
		leave()
		synctest.Wait()
		if len(results) != waiting {
			t.Errorf("%d of %d have left", len(results), waiting)
		}
		for range waiting {
			if err := <-results; !errors.Is(err, context.Canceled) {
				t.Errorf("Run() = %v", err)
			}
		}
		close(gate)
		if err := <-results; err != nil {
			t.Errorf("Run() of the job that had begun = %v", err)
		}
		if err := d.Run(ctx, func() error { ran++; return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("Run() with a context that has ended = %v", err)
		}
		if err := d.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if ran != 0 {
			t.Errorf("%d jobs ran whose callers had left", ran)
		}
	})
}

// Closing ends the thread after the job at hand; nobody waits for ever.
func TestCloseWhileJobsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := device.Open(fake.New(fake.Options{}), 0)
		if err != nil {
			t.Fatal(err)
		}
		gate := make(chan struct{})
		results := make(chan error, 1000)
		go func() { results <- d.Run(t.Context(), func() error { <-gate; return nil }) }()
		synctest.Wait()
		for range 400 {
			go func() { results <- d.Run(t.Context(), func() error { return nil }) }()
		}
		synctest.Wait()
		closed := make(chan error)
		go func() { closed <- d.Close(t.Context()) }()
		synctest.Wait()
		close(gate)
		if err := <-closed; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if len(results) != 401 {
			t.Fatalf("%d of 401 have returned", len(results))
		}
		for range 401 {
			if err := <-results; err != nil && !errors.Is(err, device.ErrClosed) {
				t.Errorf("Run() = %v", err)
			}
		}
	})
}

// A job that loses the device ends those that wait behind it.
func TestRunLosesTheDevice(t *testing.T) {
	r := newRig(t)
	lost := &driver.Error{Call: "cuLaunchKernel", Result: driver.LaunchFailed}
	if err := r.Run(r.ctx, func() error { return lost }); !errors.Is(err, device.ErrLost) || !errors.Is(err, lost) {
		t.Errorf("Run() = %v", err)
	}
	if err := r.Run(r.ctx, func() error { t.Error("it runs"); return nil }); !errors.Is(err, device.ErrLost) {
		t.Errorf("Run() after the loss = %v", err)
	}
	r.ok(r.Close(r.ctx))
}
