package live

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/store"
)

// The threshold of local prefills is changed after the workers, and only where nobody else has changed it.
func TestThreshold(t *testing.T) {
	s := store.NewMemory(store.SystemClock{})
	defer s.Close()
	a := &orders{actor: &actor{cfg: Config{Store: s, Namespace: ns, Node: "node-1", Leads: func(context.Context) (bool, error) { return true, nil }}, claimed: ConnectorTopology}}
	raw := []byte(`{"model":{"name":"m"},"prefill":1,"decode":1,"generation":4,"updated_by":"planner@x"}`)
	rev, err := s.Put(t.Context(), cluster.TopologyKey(ns), raw)
	if err != nil {
		t.Fatal(err)
	}
	d, err := decodeDeclared(store.KV{Key: "k", Value: raw, ModRevision: rev})
	if err != nil {
		t.Fatal(err)
	}
	v := View{Declared: &d, MaxLocalPrefill: 64}
	var c planner.Change
	if _, err := a.write(t.Context(), time.Now(), v, planner.Plan{Prefill: 1, Decode: 1, MaxLocalPrefill: 512}, &c, time.Minute); err != nil {
		t.Fatal(err)
	}
	kv, err := s.Get(t.Context(), cluster.SettingKey(ns, "disagg.max_local_prefill_tokens"))
	if err != nil || string(kv.Value) != "512" || c.Generation != 5 {
		t.Errorf("%s %v, generation %d", kv.Value, err, c.Generation)
	}
	now, err := s.Get(t.Context(), cluster.TopologyKey(ns))
	if err != nil {
		t.Fatal(err)
	}
	if d, err = decodeDeclared(now); err != nil {
		t.Fatal(err)
	}
	v.Declared = &d // of a moment when the setting was not there
	if _, err := a.write(t.Context(), time.Now(), v, planner.Plan{Prefill: 1, Decode: 1, MaxLocalPrefill: 0}, &c, time.Minute); err == nil {
		t.Error("what somebody else set is overwritten")
	}
	if _, err := a.write(t.Context(), time.Now().Add(-2*time.Minute), v, planner.Plan{Prefill: 2, Decode: 1, MaxLocalPrefill: 64}, &c, time.Minute); err == nil || !strings.Contains(err.Error(), "old") {
		t.Errorf("on an old observation: %v", err)
	}
	if _, err := a.write(t.Context(), time.Now(), v, planner.Plan{Prefill: 2, MaxLocalPrefill: 64}, &c, time.Minute); err == nil || !strings.Contains(err.Error(), "decode") {
		t.Errorf("without decode workers: %v", err)
	}
}

// Where the router follows the threshold and another one saves a worker, the setting is changed, by itself and told; the
// worker goes after the cool-down.
func TestPlansTheThreshold(t *testing.T) {
	inWorld(t, 2, 1, func(w *world) {
		w.chats, w.rate, w.settings.Planner.Thresholds, w.settings.Planner.Target.TTFT = true, 13, true, time.Second
		defer w.plans("node-1", nil)()
		key := cluster.SettingKey(ns, settingMaxLocal)
		w.live(200)
		if _, err := w.store.Get(w.ctx, key); err == nil || len(w.writes) > 0 {
			t.Fatal("the threshold is changed where it means nothing")
		}
		w.set(func() { w.settings.Threshold = true })
		w.until("another threshold", 200, func() bool { _, err := w.store.Get(w.ctx, key); return err == nil })
		kv, err := w.store.Get(w.ctx, key)
		if err != nil || string(kv.Value) != "512" || w.plan() != (planner.Plan{Prefill: 2, Decode: 1}) {
			t.Fatalf("%s %v, %v", kv.Value, err, w.plan())
		}
		w.set(func() { w.settings.MaxLocalPrefill = 512 })
		changed := time.Now()
		w.until("a worker goes", 300, func() bool { return w.plan() == (planner.Plan{Prefill: 1, Decode: 1}) && w.carried() })
		if took := time.Since(changed); took < w.settings.Planner.CoolDown-5*time.Second {
			t.Errorf("after %s", took)
		}
		w.live(10)
		c := w.report().Changes
		if len(c) != 2 || c[0].Cause != planner.CauseThreshold || c[0].Result != planner.ResultDone || c[0].From.MaxLocalPrefill != 64 || c[0].To.MaxLocalPrefill != 512 || c[1].Result != planner.ResultDone ||
			!strings.Contains(c[0].Words(), "change disagg.max_local_prefill_tokens from 64 to 512") {
			t.Errorf("%+v", c)
		}
		if kv, err := w.store.Get(w.ctx, key); err != nil || string(kv.Value) != "512" {
			t.Errorf("%s %v", kv.Value, err)
		}
	})
}
