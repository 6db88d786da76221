package agent

import (
	"reflect"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/frontend"
	"github.com/dynctl/dynctl/internal/planner/live"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/router"
	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/worker"
)

// standard is the rule of conditional disaggregation that is in force if nothing is set.
var standard, _ = cluster.ParseConditional("")

func TestSettings(t *testing.T) {
	n := startTestNode(t)
	cfg := n.cfg.Disagg
	base := worker.Settings{
		Prefill:       router.PrefillLimits{MaxLocalTokens: cfg.MaxLocalPrefillTokens, MaxQueueDepth: cfg.MaxPrefillQueueDepth, Conditional: standard},
		RemoteTimeout: cfg.RemotePrefillTimeout,
	}
	if got := n.settings.workers(); got != base {
		t.Errorf("nothing set: %+v, want the node's configuration %+v", got, base)
	}
	set := func(name, value string) {
		t.Helper()
		if _, err := n.mem.Put(t.Context(), cluster.SettingKey(n.cfg.Namespace, name), []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	becomes := func(what string, want worker.Settings) {
		t.Helper()
		within(t, 5*time.Second, what, func() bool { return n.settings.workers() == want })
	}
	set(settingMaxLocal, "128")
	set(settingMaxQueue, "7")
	set(settingTimeout, `"1m30s"`)
	now := worker.Settings{Prefill: router.PrefillLimits{MaxLocalTokens: 128, MaxQueueDepth: 7, Conditional: standard}, RemoteTimeout: 90 * time.Second}
	becomes("what is set is in force", now)

	// A value that makes no sense counts as not set; zero tokens do make sense.
	marker := 0
	for _, bad := range []struct{ name, value string }{
		{settingMaxLocal, "-1"}, {settingMaxLocal, `"128"`}, {settingMaxLocal, "1.5"}, {settingMaxLocal, "{"}, {settingMaxLocal, ""}, {settingMaxLocal, "1e30"},
	} {
		set(bad.name, bad.value)
		marker++
		set(settingMaxQueue, string(rune('0'+marker))) // seen after the bad one
		want := now
		want.Prefill.MaxLocalTokens, want.Prefill.MaxQueueDepth = base.Prefill.MaxLocalTokens, marker
		becomes(bad.name+" "+bad.value+" is ignored", want)
	}
	set(settingMaxLocal, "0")
	for _, bad := range []string{`"0s"`, `"-5s"`, `"soon"`, "30", "null"} {
		set(settingTimeout, bad)
		marker++
		set(settingMaxQueue, string(rune('0'+marker%10)))
		want := worker.Settings{Prefill: router.PrefillLimits{MaxLocalTokens: 0, MaxQueueDepth: marker % 10, Conditional: standard}, RemoteTimeout: base.RemoteTimeout}
		becomes("timeout "+bad+" is ignored", want)
	}
	// Deleted: the configuration again.
	if _, err := n.mem.DeletePrefix(t.Context(), cluster.SettingPrefix(n.cfg.Namespace)); err != nil {
		t.Fatal(err)
	}
	becomes("back to the configuration", base)
}

// Frontend and controller follow the same keys; every run-time setting is taken up by somebody.
func TestFrontendSettings(t *testing.T) {
	n := startTestNode(t)
	base := n.settings.frontend()
	if base.Strategy != "decode-first" || !base.Background || base.Policy != "kv" || base.RemoteTimeout != n.cfg.Disagg.RemotePrefillTimeout {
		t.Errorf("nothing set: %+v", base)
	}
	set := func(name, value string) {
		t.Helper()
		key, err := config.RuntimeKey(name)
		if err != nil {
			t.Fatal(err)
		}
		v, err := key.ParseRuntime(value)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := key.EncodeRuntime(v)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.mem.Put(t.Context(), cluster.SettingKey(n.cfg.Namespace, name), raw); err != nil {
			t.Fatal(err)
		}
	}
	other := map[string]string{
		settingStrategy: "prefill-first", settingOverlap: "false", settingMaxLocal: "7", settingMaxQueue: "9", settingTimeout: "42s", settingEnforce: "true", settingRule: `{"policy":"isl_or_load","eff_isl_threshold":100}`, settingPolicy: "round-robin",
		settingDecodeBlocks: "0.9", settingPrefillTokens: "5000", settingPrefillFrac: "1.5",
		settingAffinity: "hard", settingAffinityTTL: "90s", settingQueuePolicy: "wspt", settingRecordLoad: "false",
		settingSurge: "3", settingUnavailable: "10%",
		settingPlannerMode: "off", settingPlannerConnector: "virtual", settingPlannerKubePrefill: "deployments.apps/p", settingPlannerKubeDecode: "deployments.apps/d", settingPlannerGoal: "cost", settingPlannerTTFT: "300ms", settingPlannerITL: "20ms", settingPlannerPercentile: "90", settingPlannerDevices: "12",
		settingPlannerPrefillMin: "2", settingPlannerPrefillMax: "5", settingPlannerDecodeMin: "2", settingPlannerDecodeMax: "6",
		settingPlannerPredictor: "linear", settingPlannerInterval: "30s", settingPlannerForecast: "2m", settingPlannerCoolDown: "20s",
		settingPlannerThresholds: "false", settingPlannerTimeout: "7m",
	}
	planned := func() live.Settings { all, _ := n.settings.planner(); return all }
	if got := n.settings.rollout(); got != (cluster.Rollout{MaxSurge: cluster.DefaultRollout, MaxUnavailable: cluster.DefaultRollout}) {
		t.Errorf("nothing set: %+v", got)
	}
	for _, k := range config.RuntimeKeys() {
		if other[k.Name] == "" {
			t.Errorf("nobody takes up %s", k.Name)
			continue
		}
		before, rollout, plan := n.settings.frontend(), n.settings.rollout(), planned()
		set(k.Name, other[k.Name])
		within(t, 5*time.Second, k.Name+" is in force", func() bool {
			return n.settings.frontend() != before || n.settings.rollout() != rollout || !reflect.DeepEqual(planned(), plan)
		})
	}
	want := frontend.Settings{
		Policy: "round-robin", Strategy: "prefill-first", Prefill: router.PrefillLimits{MaxLocalTokens: 7, MaxQueueDepth: 9, Conditional: cluster.Conditional{Rule: cluster.ConditionalISLOrLoad, Tokens: 100, Ratio: 0.7, PrefillBusy: 1}, Enforce: true}, RemoteTimeout: 42 * time.Second,
		Busy:    router.BusyLimits{KVShare: 0.9, PrefillTokens: 5000, PrefillSteps: 1.5},
		Session: frontend.SessionSettings{Affinity: frontend.AffinityHard, TTL: 90 * time.Second}, QueuePolicy: frontend.QueueShortest,
	}
	if got := n.settings.frontend(); got != want {
		t.Errorf("all set: %+v, want %+v", got, want)
	}
	if _, err := n.mem.Put(t.Context(), cluster.SettingKey(n.cfg.Namespace, settingStrategy), []byte(`"quue"`)); err != nil {
		t.Fatal(err)
	}
	within(t, 5*time.Second, "an unknown strategy is ignored", func() bool { return n.settings.frontend().Strategy == "decode-first" })
}

// What the release before has stored is in force, until it is set under its present name.
func TestFormerSettings(t *testing.T) {
	mem := store.NewMemory(nil)
	defer mem.Close()
	a := &Agent{cfg: testConfig(t), log: testLog(t), stores: &stores{store: mem}}
	put := func(name, value string) {
		if _, err := mem.Put(t.Context(), cluster.SettingKey(a.cfg.Namespace, name), []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	put("disagg.background_prefill", "false")
	put(settingStrategy, `"router"`)
	s, err := watchSettings(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if f := s.frontend(); f.Background || f.Strategy != protocol.StrategyPrefillFirst {
		t.Errorf("%+v", f)
	}
	put(settingOverlap, "true")
	within(t, 5*time.Second, "the present name counts", func() bool { return s.frontend().Background })
}

// What the store says is in force from the start, and what cannot be read is not.
func TestSettingsFromTheStart(t *testing.T) {
	mem := store.NewMemory(nil)
	defer mem.Close()
	a := &Agent{cfg: testConfig(t), log: testLog(t), stores: &stores{store: mem}}
	for name, value := range map[string]string{settingMaxLocal: "128", settingMaxQueue: "many", settingTimeout: `"1m30s"`} {
		if _, err := mem.Put(t.Context(), cluster.SettingKey(a.cfg.Namespace, name), []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	k, err := watchSettings(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	defer k.close()
	want := worker.Settings{
		Prefill:       router.PrefillLimits{MaxLocalTokens: 128, MaxQueueDepth: a.cfg.Disagg.MaxPrefillQueueDepth, Conditional: standard},
		RemoteTimeout: 90 * time.Second,
	}
	if got := k.workers(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
