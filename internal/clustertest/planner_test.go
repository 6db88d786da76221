package clustertest_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/clustertest"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/planner"
)

const (
	plannedPrompt = 200                    // tokens
	perToken      = 500 * time.Microsecond // that a prompt takes at least, so that a worker computes ten a second
)

// pacedBackend takes as long for prompts as it is told.
type pacedBackend struct{ engine.Backend }

func (b pacedBackend) Step(ctx context.Context, batch []engine.BatchSeq) error {
	tokens := 0
	for _, s := range batch {
		if len(s.Tokens) > 1 {
			tokens += len(s.Tokens)
		}
	}
	time.Sleep(time.Duration(tokens) * perToken) // the pace is the test
	return b.Backend.Step(ctx, batch)
}

// load sends requests at a rate that changes, whatever becomes of them.
type load struct {
	rate   atomic.Int64 // a second
	sent   atomic.Int64
	failed atomic.Pointer[error]
	wg     sync.WaitGroup
}

func (l *load) run(ctx context.Context, c *clustertest.Cluster) {
	for ctx.Err() == nil {
		n := l.sent.Add(1)
		l.wg.Go(func() {
			prompt := make([]uint32, plannedPrompt)
			for i := range prompt { // no two begin alike
				prompt[i] = uint32(int64(i+1)*n+n>>8) % 256
			}
			_, err := c.Complete(context.WithoutCancel(ctx), clustertest.Body{"prompt": prompt, "max_tokens": 3, "temperature": 0, "ignore_eos": true})
			if err != nil {
				err = fmt.Errorf("request %d: %w", n, err)
				l.failed.CompareAndSwap(nil, &err)
			}
		})
		select {
		case <-ctx.Done():
		case <-time.After(time.Second / time.Duration(l.rate.Load())):
		}
	}
}

// In mode act, workers come for a load that rises, and go when it falls. The leader is killed when it has changed
// the topology and told nobody. No request fails.
func TestPlannerActs(t *testing.T) {
	if patience.RaceDetector {
		t.Skip("package planner/live runs with the race detector; here, it would plan for workers that are that slow")
	}
	t.Parallel()
	c := clustertest.Start(t, clustertest.Options{
		Prefill: 1, Decode: 1, Engine: cluster.EngineSpec{BlockSize: 16, KVBlocks: 1024},
		Backend: func(_ cluster.Assignment, b engine.Backend) engine.Backend { return pacedBackend{b} },
		Nodes: []clustertest.Node{{}, {Process: true, Config: func(cfg *config.Dynamod) {
			cfg.CPU.Devices, cfg.Etcd.LeaseTTL = -1, 3*time.Second // it only leads
		}}},
	})
	c.Set(map[string]any{
		"planner.mode": planner.ModeAct, "planner.devices": 3, "planner.prefill_min": 1, "planner.predictor": "constant",
		"planner.ttft": "1s", "planner.itl": "1m", "planner.interval": "1s", "planner.forecast_interval": "4s", "planner.cool_down": "2s",
	})
	c.WaitRemotePrefill()
	c.Lead(1)
	if err := c.Nodes[1].DieAt(deathOfPlanner.point, 1); err != nil {
		t.Fatal(err)
	}
	l := &load{}
	l.rate.Store(14)
	ctx, stop := context.WithCancel(t.Context())
	l.wg.Go(func() { l.run(ctx, c) })
	defer l.wg.Wait()
	defer stop()
	plan := func(v client.View) [2]int { return [2]int{v.Topology.Prefill, v.Topology.Decode} }
	fits := func(v client.View) {
		if n := v.Topology.Workers(); n > 3 {
			t.Errorf("%d of 3 devices", n)
		}
	}
	begin := time.Now()
	c.WaitView("the leader has changed the topology, and is dead", func(v client.View) bool {
		fits(v)
		return plan(v) == [2]int{2, 1} && len(v.Nodes) == 1
	})
	t.Logf("changed, and dead, after %s and %d requests", time.Since(begin).Round(time.Millisecond), l.sent.Load())
	settled(t, c, "the next one has carried it out", 2, 1, nil)
	l.rate.Store(2)
	c.WaitView("the next planner takes it back", func(v client.View) bool { fits(v); return plan(v) == [2]int{1, 1} })
	settled(t, c, "it is carried out", 1, 1, nil)
	t.Logf("back after %s and %d requests", time.Since(begin).Round(time.Millisecond), l.sent.Load())
	var r *planner.Report
	c.WaitView("it is told", func(client.View) bool {
		c.Insist(func(ctx context.Context) (err error) {
			all, err := c.Client.PlannerReports(ctx)
			if len(all) > 0 {
				r = &all[0]
			}
			return err
		})
		return r != nil && len(r.Changes) >= 2 && r.Changes[len(r.Changes)-1].Result == planner.ResultDone
	})
	first, last := r.Changes[0], r.Changes[len(r.Changes)-1]
	if first.Node != "node-2" || first.Result != planner.ResultDone && first.Result != planner.ResultOvertaken || !strings.Contains(first.Detail, "1P1D -> 2P1D") {
		t.Errorf("the change of the dead leader: %+v", first)
	}
	if last.Node != "node-1" || last.To.Prefill != 1 || last.To.Decode != 1 || last.Cause != planner.CauseDown && last.Cause != planner.CauseTakeBack {
		t.Errorf("the last change: %+v", last)
	}
	stop()
	l.wg.Wait()
	if err := l.failed.Load(); err != nil {
		t.Error(*err)
	}
}
