package runtime_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/runtime/runtimetest"
)

// probed serves an endpoint with a canary that waits 10 s and has 3 s.
func probed(t *testing.T, d *runtime.DistributedRuntime, h requestplane.Handler) *runtime.Served {
	t.Helper()
	s, err := d.In("").Component("backend").Endpoint("generate").Serve(t.Context(), h, runtime.WithCanary(runtime.Canary{Body: "probe"}))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func isReady(t *testing.T, s *runtime.Served, why string) {
	t.Helper()
	synctest.Wait()
	h := s.Health()
	if h.Ready != (why == "") || !strings.Contains(h.Why, why) {
		t.Errorf("after %s: %+v, want reason %q", time.Since(start), h, why)
	}
}

var start time.Time

func TestCanaryProbesAnIdleEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start = time.Now()
		c := runtimetest.New(t)
		d := c.Runtime(t, "worker-1")
		var probes, calls atomic.Int32
		var failing atomic.Bool
		s := probed(t, d, func(_ context.Context, r *requestplane.Request, send func(any) error) error {
			calls.Add(1)
			if r.ID == "canary" {
				probes.Add(1)
				var body string
				if err := r.Decode(&body); err != nil || body != "probe" {
					t.Errorf("body %q, %v", body, err)
				}
			}
			if failing.Load() {
				return errors.New("out of memory")
			}
			return errors.Join(send(1), send(2), send(3))
		})
		isReady(t, s, "")
		if n := probes.Load(); n != 1 {
			t.Fatalf("%d probes at the start", n)
		}
		// Real answers put the next probe off.
		client := runtimetest.Client(t, d, "backend", "generate")
		inst := only(t, client)
		request := func() {
			stream, err := client.Call(t.Context(), inst, "req-1", nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			for err == nil {
				err = stream.Recv(t.Context(), nil)
			}
		}
		time.Sleep(9 * time.Second)
		request()
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if n := probes.Load(); n != 1 {
			t.Errorf("%d probes of a busy endpoint", n)
		}
		failing.Store(true)
		time.Sleep(time.Second + time.Millisecond)
		isReady(t, s, "out of memory")
		if all := d.Health(); len(all) != 1 || all[cluster.Endpoint{Namespace: "dynamo", Component: "backend", Name: "generate"}].Ready {
			t.Errorf("all: %+v", all)
		}
		time.Sleep(20 * time.Second)
		isReady(t, s, "out of memory")
		if n := probes.Load(); n != 4 {
			t.Errorf("%d probes after 20 s without an answer", n)
		}
		// A request that is answered makes it ready.
		failing.Store(false)
		request()
		isReady(t, s, "")
		before := calls.Load()
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if calls.Load() != before {
			t.Error("a closed endpoint is probed")
		}
	})
}

func TestCanaryOutcomes(t *testing.T) {
	for name, tc := range map[string]struct {
		h   requestplane.Handler
		why string
	}{
		"an empty answer": {func(context.Context, *requestplane.Request, func(any) error) error { return nil }, ""},
		"a panic":         {func(context.Context, *requestplane.Request, func(any) error) error { panic("no tokens") }, "handler panicked: no tokens"},
		"an error after an item": {func(_ context.Context, _ *requestplane.Request, send func(any) error) error {
			return errors.Join(send(1), errors.New("late"))
		}, ""},
		"no answer": {func(ctx context.Context, _ *requestplane.Request, _ func(any) error) error {
			<-ctx.Done()
			return nil
		}, "no answer to the canary within 3s"},
		"a stream without an end": {func(ctx context.Context, _ *requestplane.Request, send func(any) error) error {
			for {
				if err := send(1); err != nil {
					return err
				}
				select {
				case <-ctx.Done():
					return nil
				case <-time.After(time.Millisecond):
				}
			}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start = time.Now()
				s := probed(t, runtimetest.New(t).Runtime(t, "worker-1"), tc.h)
				time.Sleep(3*time.Second + time.Millisecond)
				isReady(t, s, tc.why)
			})
		})
	}
}

// A handler that hangs gets no second canary, and Close waits for it no longer than it may.
func TestCanaryOfAHandlerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start = time.Now()
		c := runtimetest.New(t)
		d := c.Runtime(t, "worker-1")
		release := make(chan struct{})
		var calls atomic.Int32
		s := probed(t, d, func(context.Context, *requestplane.Request, func(any) error) error {
			calls.Add(1)
			<-release
			return nil
		})
		isReady(t, s, "not probed yet")
		time.Sleep(14 * time.Second)
		isReady(t, s, "has not returned")
		if n := calls.Load(); n != 1 {
			t.Errorf("%d calls", n)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Close(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("close: %v", err)
		}
		close(release)
		if err := s.Close(t.Context()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
}
