package runtime_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/runtime/runtimetest"
)

// engine is what works behind an endpoint.
type engine struct {
	work   atomic.Uint64
	stuck  atomic.Bool
	probes atomic.Int32
}

func (e *engine) probe(ctx context.Context) error {
	e.probes.Add(1)
	if e.stuck.Load() {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return nil
}

// serve serves two endpoints that need e, probed after 10 s, for 3 s.
func (e *engine) serve(t *testing.T, d *runtime.DistributedRuntime) (generate, handover *runtime.Served) {
	t.Helper()
	h := func(context.Context, *requestplane.Request, func(any) error) error {
		return errors.New("no calls here")
	}
	generate, err := d.Serve(t.Context(), "decode", "generate", h, runtime.WithCanary(runtime.Canary{Probe: e.probe, Progress: e.work.Load, Proven: true}))
	if err != nil {
		t.Fatal(err)
	}
	handover, err = d.Serve(t.Context(), "decode", "handover", h, runtime.WithHealthOf(generate))
	if err != nil {
		t.Fatal(err)
	}
	return generate, handover
}

// While there is progress there is no probe. When it ends, the endpoint is not ready at most
// Wait and Timeout later, whenever it ended, and ready soon after it goes on.
func TestProgress(t *testing.T) {
	for _, last := range []time.Duration{60*time.Second + time.Millisecond, 62 * time.Second, 64*time.Second + 999*time.Millisecond} {
		t.Run(last.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start = time.Now()
				e := &engine{}
				generate, handover := e.serve(t, runtimetest.New(t).Runtime(t, "worker-1"))
				isReady(t, generate, "")
				for time.Since(start) < last-time.Second {
					time.Sleep(time.Second)
					e.work.Add(1)
				}
				if n := e.probes.Load(); n != 0 {
					t.Errorf("%d probes of a busy engine", n)
				}
				time.Sleep(last - time.Since(start))
				e.work.Add(1)
				e.stuck.Store(true)
				time.Sleep(7 * time.Second)
				isReady(t, generate, "")
				time.Sleep(6 * time.Second)
				isReady(t, generate, "no answer to the canary within 3s")
				isReady(t, handover, "no answer to the canary within 3s")
				time.Sleep(time.Minute)
				isReady(t, generate, "no answer to the canary within 3s")
				e.stuck.Store(false)
				time.Sleep(4 * time.Second) // a probe may have hung
				isReady(t, generate, "")
				isReady(t, handover, "")
			})
		})
	}
}

// An idle endpoint is probed once in Wait, and progress makes one ready that was not.
func TestProgressOfAnIdleEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start = time.Now()
		e := &engine{}
		generate, _ := e.serve(t, runtimetest.New(t).Runtime(t, "worker-1"))
		time.Sleep(time.Minute + time.Millisecond)
		if n := e.probes.Load(); n != 6 {
			t.Errorf("%d probes in a minute", n)
		}
		e.stuck.Store(true)
		time.Sleep(14 * time.Second)
		isReady(t, generate, "no answer")
		e.work.Add(1)
		time.Sleep(4 * time.Second)
		isReady(t, generate, "")
		if err := generate.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		n := e.probes.Load()
		time.Sleep(time.Minute)
		if e.probes.Load() != n {
			t.Error("a closed endpoint is probed")
		}
	})
}
