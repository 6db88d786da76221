package clustertest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/clustertest"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/planner"
)

// refusingBackend has no memory.
type refusingBackend struct{ engine.Backend }

func (refusingBackend) AllocKV(int) (engine.KVPool, error) {
	return nil, errors.New("the test refuses")
}

// actsFast are settings with which a planner acts within seconds.
var actsFast = map[string]any{
	"planner.mode": planner.ModeAct, "planner.predictor": "constant", "planner.ttft": "1s", "planner.itl": "1m",
	"planner.interval": "1s", "planner.forecast_interval": "4s", "planner.cool_down": "2s",
}

// under sends a load of so many requests a second until the returned function is called, which wants that none failed.
func under(t *testing.T, c *clustertest.Cluster, rate int64) (stop func()) {
	t.Helper()
	l := &load{}
	l.rate.Store(rate)
	ctx, cancel := context.WithCancel(t.Context())
	l.wg.Go(func() { l.run(ctx, c) })
	end := func() { cancel(); l.wg.Wait() }
	t.Cleanup(end)
	return func() {
		t.Helper()
		end()
		if err := l.failed.Load(); err != nil {
			t.Error(*err)
		}
		t.Logf("%d requests", l.sent.Load())
	}
}

// A worker that never gets ready is named and given up; its role starts none for a while; the budget is kept, and no
// request fails.
func TestPlannerGivesUp(t *testing.T) {
	if patience.RaceDetector {
		t.Skip("package planner/live runs with the race detector; here, it would plan for workers that are that slow")
	}
	t.Parallel()
	var refuses atomic.Bool
	c := clustertest.Start(t, clustertest.Options{
		Prefill: 1, Decode: 1, Engine: cluster.EngineSpec{BlockSize: 16, KVBlocks: 1024},
		Backend: func(_ cluster.Assignment, b engine.Backend) engine.Backend {
			if refuses.Load() {
				return refusingBackend{b}
			}
			return pacedBackend{b}
		},
	})
	refuses.Store(true)
	told := hearPlanners(t, c)
	c.Set(actsFast)
	c.Set(map[string]any{"planner.devices": 3, "planner.prefill_min": 1, "planner.action_timeout": "4s"})
	c.WaitRemotePrefill()
	stop := under(t, c, 14)
	fits := func(v client.View) {
		if n := v.Topology.Workers(); n > 3 {
			t.Errorf("%d of 3 devices", n)
		}
	}
	c.WaitView("a worker starts", func(v client.View) bool { fits(v); return v.Topology.Prefill == 2 })
	c.WaitView("it is given up", func(v client.View) bool { fits(v); return v.Topology.Prefill == 1 && v.Topology.Decode == 1 })
	settled(t, c, "it is gone", 1, 1, nil)
	r := told.until(t, "no prefill worker is started for a while", func(r planner.Report) bool { return r.Decision.Refusal == planner.RefusedBackOff })
	if d := r.Decision; !strings.Contains(d.Detail, "worker-3 did not get ready in 4s") || d.Changes() {
		t.Errorf("%+v", d)
	}
	i := slices.IndexFunc(r.Changes, func(c planner.Change) bool { return c.Cause == planner.CauseGiveUp })
	if i < 1 || !strings.Contains(r.Changes[i].Detail, "worker-3 did not get ready in time") || r.Changes[i-1].Result != planner.ResultLate && r.Changes[i-1].Result != planner.ResultOvertaken {
		t.Errorf("changes: %+v", r.Changes)
	}
	stop()
}

// A budget that is lowered below what runs is kept at once, under load: workers drain, nothing fails, and there are never
// more than it allows again.
func TestPlannerKeepsALoweredBudget(t *testing.T) {
	if patience.RaceDetector {
		t.Skip("package planner/live runs with the race detector; here, it would plan for workers that are that slow")
	}
	t.Parallel()
	c := clustertest.Start(t, clustertest.Options{
		Prefill: 2, Decode: 2, Engine: cluster.EngineSpec{BlockSize: 16, KVBlocks: 1024},
		Backend: func(_ cluster.Assignment, b engine.Backend) engine.Backend { return pacedBackend{b} },
	})
	told := hearPlanners(t, c)
	c.Set(map[string]any{"planner.devices": 4, "planner.prefill_min": 2, "planner.decode_min": 2})
	c.Set(actsFast)
	c.WaitRemotePrefill()
	stop := under(t, c, 8)
	told.until(t, "it decides", func(r planner.Report) bool {
		return r.Decision.Mode == planner.ModeAct && len(r.Decision.Candidates) > 0 && r.Decision.Current.Prefill == 2 && r.Decision.Current.Decode == 2
	})
	c.Set(map[string]any{"planner.prefill_min": 1, "planner.decode_min": 1, "planner.devices": 2})
	began, ordered := time.Now(), time.Duration(0)
	most := 4
	kept := func(v client.View) {
		n := v.Topology.Workers()
		if n > most {
			t.Errorf("%d workers after %d", n, most)
		}
		most = min(most, n)
	}
	c.WaitView("the budget is declared", func(v client.View) bool {
		kept(v)
		ordered = time.Since(began)
		return v.Topology.Prefill == 1 && v.Topology.Decode == 1
	})
	settled(t, c, "two workers are left", 1, 1, func(v client.View) bool { kept(v); return true })
	t.Logf("ordered after %s, carried out after %s", ordered.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	r := told.until(t, "the change is done", func(r planner.Report) bool {
		n := len(r.Changes)
		return n > 0 && r.Changes[n-1].To.Prefill+r.Changes[n-1].To.Decode == 2 && r.Changes[n-1].Result == planner.ResultDone
	})
	if !slices.ContainsFunc(r.Changes, func(c planner.Change) bool { return c.Cause == planner.CauseBudget }) {
		t.Errorf("%+v", r.Changes)
	}
	stop()
	c.WaitView("the budget is kept", func(v client.View) bool { kept(v); return true })
}
