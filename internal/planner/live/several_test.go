package live

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/store"
)

// several is a cluster with a main pool of model m, a pool small of model s, and what is added.
func several(t *testing.T, more string, f func(w *world)) {
	t.Helper()
	inAny(t, 0, 0, func(w *world) {
		w.topology = fmt.Sprintf(`{"model":{"name":"m"},%s,"prefill":1,"decode":1,"pools":{ "small" :{"later":[1 ,2],"model":{"name":"s"},"prefill":1, "decode":1}%s},"generation":1,"updated_by":"ann@host"}`, future, more)
		w.rates = map[string]int{"small": 4}
	}, f)
}

func (w *world) of(pool string) planner.Plan {
	t, _ := w.declared()
	return planner.Plan{Prefill: t.In(pool).Prefill, Decode: t.In(pool).Decode}
}

// newest returns the newest report of a pool.
func (w *world) newest(pool string) (r planner.Report) {
	for _, told := range w.lab.heard() {
		if told.Pool == pool {
			r = told
		}
	}
	return r
}

// checkPools is what holds of every change of a planner.
func (w *world) checkPools() {
	w.t.Helper()
	for _, x := range w.writes {
		var changed []string
		for _, pool := range x.to.PoolNames() {
			if !declaration(x.from.In(pool)).Equal(declaration(x.to.In(pool))) {
				changed = append(changed, pool)
			}
		}
		if len(changed) != 1 || !strings.HasPrefix(x.to.Reason, signature(changed[0])) || x.to.Generation != x.from.Generation+1 {
			w.t.Errorf("%s: %q changes, generation %d after %d", x.to.Reason, changed, x.to.Generation, x.from.Generation)
		}
		before, after := started(x.from), started(x.to)
		if n := after.Prefill + after.Decode; n > max(x.devices, before.Prefill+before.Decode-1) {
			w.t.Errorf("%s: %d of %d devices", x.to.Reason, n, x.devices)
		}
		for _, pool := range x.to.PoolNames() {
			if x.to.In(pool).Decode < 1 {
				w.t.Errorf("%s: nothing serves %q", x.to.Reason, pool)
			}
		}
	}
}

// Two pools with opposite loads: each gets the workers of its own model's requests, and gives them back; the other one
// stays as it is. A later field of a pool stays, too.
func TestPoolsFollowTheirOwnLoads(t *testing.T) {
	several(t, "", func(w *world) {
		defer w.plans("node-1", nil)()
		w.live(60)
		if w.of("") != (planner.Plan{Prefill: 1, Decode: 1}) || w.of("small") != w.of("") || len(w.writes) != 0 {
			t.Fatalf("at rest: %v and %v", w.of(""), w.of("small"))
		}
		w.rates["small"] = 50
		w.until("more workers of small", 60, func() bool { return w.of("small").Prefill > 1 })
		topo, raw := w.declared()
		if !strings.HasPrefix(topo.Reason, "planner of pool small: 1P1D -> ") || !strings.Contains(raw, `"small" :{"later":[1 ,2],"model":{"name":"s"},"prefill":2, "decode":`) {
			t.Errorf("%s", raw)
		}
		w.until("it is carried out", 60, func() bool {
			c := w.newest("small").Changes
			return len(c) > 0 && c[len(c)-1].Result == planner.ResultDone
		})
		if w.of("") != (planner.Plan{Prefill: 1, Decode: 1}) {
			t.Errorf("the main pool: %v", w.of(""))
		}
		if r := w.newest(""); r.Observed.Rate != 4 || r.Model != "m" || len(r.Observed.Prefill) != 1 || len(r.Changes) != 0 {
			t.Errorf("the main pool sees %v requests/s and %d prefill workers", r.Observed.Rate, len(r.Observed.Prefill))
		}
		if r := w.newest("small"); r.Observed.Rate != 50 || r.Model != "s" || r.Node != "node-1" {
			t.Errorf("small sees %v requests/s of %s", r.Observed.Rate, r.Model)
		}
		w.set(func() { w.rates["small"], w.rate = 4, 50 })
		w.until("the other way round", 900, func() bool {
			return w.of("").Prefill > 1 && w.of("small") == (planner.Plan{Prefill: 1, Decode: 1}) && w.carried()
		})
		w.checkPools()
		if r, _, err := store.GetJSON[planner.Report](w.ctx, w.store, cluster.PlannerKey(ns, "small")); err != nil || r.Pool != "small" || len(r.Changes) == 0 {
			t.Errorf("stored: %+v %v", r, err)
		}
	})
}

// One budget: the pool that comes second is told who has the devices, and gets them when they are free.
func TestPoolsShareDevices(t *testing.T) {
	several(t, "", func(w *world) {
		w.settings.Planner.Devices = 6
		defer w.plans("node-1", nil)()
		w.live(60)
		w.rate = 85
		w.until("the main pool takes what is free", 90, func() bool { return w.of("").Prefill+w.of("").Decode == 4 && w.carried() })
		w.rates["small"] = 85
		w.until("small is refused", 60, func() bool {
			d := w.newest("small").Decision
			return d.Refusal == planner.RefusedBudget && strings.Contains(d.Detail, "Of the 6 devices for all pools, the main pool keeps 4")
		})
		w.set(func() { w.rate = 4 })
		w.until("small has them", 900, func() bool { return w.of("small").Prefill+w.of("small").Decode == 4 })
		w.checkPools()
		// A lower budget: both give, down to their minima.
		w.set(func() { w.settings.Planner.Devices, w.rates["small"] = 4, 85 })
		w.until("within the new budget", 60, func() bool {
			p := started(func() cluster.Topology { t, _ := w.declared(); return t }())
			return p.Prefill+p.Decode == 4
		})
		w.checkPools()
	})
}

// A change of one pool that does not end, or that somebody makes by hand, does not hold up another one.
func TestPoolsDoNotWait(t *testing.T) {
	several(t, "", func(w *world) {
		w.settings.Planner.Devices = 12
		defer w.plans("node-1", nil)()
		w.live(60)
		w.starts = 100
		w.rates["small"] = 50
		w.until("small grows", 60, func() bool { return w.of("small").Prefill > 1 })
		grew := time.Now()
		w.rate = 50
		w.until("the main pool, too", 30, func() bool { return w.of("").Prefill > 1 })
		if c := w.newest("small").Changes; c[0].Result != planner.ResultUnderWay {
			t.Errorf("small, %s later: %+v", time.Since(grew), c)
		}
		w.until("both are done", 200, func() bool {
			a, b := w.newest("").Changes, w.newest("small").Changes
			return len(a) > 0 && len(b) > 0 && a[0].Result == planner.ResultDone && b[0].Result == planner.ResultDone
		})
		w.starts = 10
		w.scale(1, 1) // of the main pool
		w.live(6)
		if d := w.newest("").Decision; d.Refusal != planner.RefusedByHand {
			t.Errorf("the main pool: %s %s", d.Refusal, d.Detail)
		}
		if d := w.newest("small").Decision; d.Refusal == planner.RefusedByHand {
			t.Errorf("small: %s", d.Detail)
		}
	})
}

// Both pools may change at once: the second change is made on what the first one wrote. Somebody who changes the topology
// at that moment wins.
func TestPoolsSwapOneAfterAnother(t *testing.T) {
	several(t, "", func(w *world) {
		w.settings.Planner.Devices = 12
		hand := false
		gate := func(key string) {
			if hand && key == cluster.TopologyKey(ns) {
				hand = false
				w.mu.Unlock()
				w.scale(1, 2)
				w.mu.Lock()
			}
		}
		defer w.plans("node-1", func(key string) { w.mu.Lock(); defer w.mu.Unlock(); gate(key) })()
		w.live(60)
		w.set(func() { w.rate, w.rates["small"] = 50, 50 })
		w.until("both grow", 60, func() bool { return w.of("").Prefill > 1 && w.of("small").Prefill > 1 })
		if len(w.writes) != 2 || !w.writes[0].at.Equal(w.writes[1].at) {
			t.Errorf("%d changes, not at once", len(w.writes))
		}
		w.until("they are done", 200, func() bool { return w.carried() })
		w.checkPools()
		w.live(60)
		w.set(func() { hand, w.rates["small"] = true, 90 })
		w.until("somebody was faster", 200, func() bool {
			c := w.newest("small").Changes
			return len(c) > 0 && c[len(c)-1].Result == planner.ResultConflict
		})
		w.until("small tries again", 60, func() bool {
			c := w.newest("small").Changes
			return c[len(c)-1].Result == planner.ResultUnderWay || c[len(c)-1].Result == planner.ResultDone
		})
		if w.of("").Decode != 2 {
			t.Errorf("what was scaled by hand: %v", w.of(""))
		}
	})
}

// Attached servers alone are observed and never changed; beside workers of our own they are capacity. A pool that the
// planner is to leave alone stays, and keeps its devices.
func TestAttachedServers(t *testing.T) {
	several(t, `,"still":{"model":{"name":"q"},"decode":1,"planner":{"mode":"off"}}`, func(w *world) {
		kv, err := w.store.Get(w.ctx, cluster.TopologyKey(ns))
		if err != nil {
			t.Fatal(err)
		}
		server := func(url, model string) map[string]any {
			return map[string]any{"model": map[string]any{"name": model}, "role": "decode", "engine": map[string]any{"backend": "vllm", "server": map[string]any{"url": url}}}
		}
		next, err := amend(kv.Value, []field{{"attached", []any{server("http://a:1", "other"), server("http://b:1", "s"), server("http://c:1", "other")}}, {"generation", 2}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.store.Put(w.ctx, cluster.TopologyKey(ns), next); err != nil {
			t.Fatal(err)
		}
		w.rates["still"], w.rates["http://a:1"] = 90, 90
		w.settings.Planner.Devices = 7
		stop := w.plans("node-1", nil)
		w.live(90)
		if r := w.newest("http://a:1"); r.Decision.Refusal != planner.RefusedAttached || r.Observed.Rate != 90 || len(r.Observed.Decode) != 2 || !r.Observed.Decode[0].Attached {
			t.Errorf("servers alone: %+v", r)
		}
		if r := w.newest("still"); r.Decision.Refusal != planner.RefusedOff || r.Observed.Rate != 90 {
			t.Errorf("still: %+v", r.Decision)
		}
		if r := w.newest("small"); len(r.Observed.Decode) != 2 || r.Beside != (planner.Plan{Decode: 1}) || r.Decision.Current != (planner.Plan{Prefill: 1, Decode: 2, MaxLocalPrefill: 64}) {
			t.Errorf("small: %+v %+v", r.Beside, r.Decision)
		}
		for range 2 { // up and down again
			w.set(func() { w.rates["small"] = 54 - w.rates["small"] })
			w.live(300)
		}
		w.checkPools()
		topo, _ := w.declared()
		if len(topo.Attached) != 3 || w.of("still") != (planner.Plan{Decode: 1}) || len(w.writes) < 2 {
			t.Errorf("%d attached, still %v, %d changes", len(topo.Attached), w.of("still"), len(w.writes))
		}
		// What is no pool any more leaves nothing behind.
		kv, err = w.store.Get(w.ctx, cluster.TopologyKey(ns))
		if err != nil {
			t.Fatal(err)
		}
		topo, _ = w.declared()
		next, err = amend(kv.Value, []field{{"pools", map[string]any{"still": topo.Pools["still"]}}, {"attached", []any{}}, {"generation", topo.Generation + 1}, {"updated_by", "ann@host"}})
		if err != nil {
			t.Fatal(err)
		}
		stop() // and the next leader cleans up
		if _, err := w.store.Put(w.ctx, cluster.TopologyKey(ns), next); err != nil {
			t.Fatal(err)
		}
		w.set(func() { delete(w.rates, "http://a:1"); delete(w.rates, "small") })
		defer w.plans("node-2", nil)()
		w.live(10)
		for _, prefix := range []string{cluster.PlannerPrefix(ns), cluster.DaysPrefix(ns)} {
			kvs, _, err := w.store.List(w.ctx, prefix)
			if err != nil {
				t.Fatal(err)
			}
			for _, kv := range kvs {
				if pool := cluster.PoolOf(kv.Key, prefix); pool != "" && pool != "still" {
					t.Errorf("left: %s", kv.Key)
				}
			}
		}
	})
}
