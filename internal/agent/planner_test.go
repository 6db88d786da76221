package agent

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/planner/live"
	"github.com/dynctl/dynctl/internal/planner/predict"
)

// Every setting of the planner reaches its configuration, at once; those that do not go together are named.
func TestPlannerSettings(t *testing.T) {
	n := startTestNode(t)
	all, err := n.settings.planner()
	cfg := all.Planner
	if err != nil || cfg.Validate() == nil || all.MaxLocalPrefill != n.cfg.Disagg.MaxLocalPrefillTokens || all.Connector != live.ConnectorTopology || !all.LeastDelay || all.Threshold {
		t.Errorf("%+v %v: devices are for the loop to fill in, and nothing else", all, err)
	}
	if cfg.Devices = 8; cfg.Validate() != nil {
		t.Errorf("defaults: %v", cfg.Validate())
	}
	set := func(name, value string) {
		t.Helper()
		if _, err := n.mem.Put(t.Context(), cluster.SettingKey(n.cfg.Namespace, name), []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range map[string]string{
		settingPlannerMode: `"act"`, settingPlannerConnector: `"kubernetes"`, settingPlannerKubePrefill: `"deployments.apps/p"`, settingPlannerKubeDecode: `"statefulsets.apps/d"`, settingPlannerGoal: `"cost"`, settingPlannerTTFT: `"300ms"`, settingPlannerITL: `"20ms"`, settingPlannerPercentile: "90",
		settingPlannerDevices: "12", settingPlannerPrefillMin: "1", settingPlannerPrefillMax: "5", settingPlannerDecodeMin: "2", settingPlannerDecodeMax: "6",
		settingPlannerPredictor: `"linear"`, settingPlannerInterval: `"30s"`, settingPlannerForecast: `"2m"`, settingPlannerCoolDown: `"20s"`, settingMaxLocal: "77", settingRule: `"threshold"`, settingPlannerTimeout: `"7m"`,
	} {
		set(name, value)
	}
	want := planner.Defaults()
	want.Mode, want.Devices, want.Predictor = planner.ModeAct, 12, "linear"
	want.Target = planner.Target{Goal: planner.GoalCost, TTFT: 300 * time.Millisecond, ITL: 20 * time.Millisecond, Percentile: 0.9}
	want.Prefill.Min, want.Prefill.Max, want.Decode.Min, want.Decode.Max = 1, 5, 2, 6
	want.LoadInterval, want.ThroughputInterval, want.ForecastStep, want.StaleAfter, want.CoolDown = 30*time.Second, 2*time.Minute, 2*time.Minute, time.Minute, 20*time.Second
	want.KeepRoles, want.ActionTimeout, want.Thresholds = true, 7*time.Minute, true
	targets := live.Targets{Prefill: cluster.ScaleTarget{Resource: "deployments", Group: "apps", Name: "p"}, Decode: cluster.ScaleTarget{Resource: "statefulsets", Group: "apps", Name: "d"}}
	within(t, long, "all settings are in force", func() bool {
		got, err := n.settings.planner()
		return err == nil && got.Planner.Validate() == nil && reflect.DeepEqual(got, live.Settings{Planner: want, Connector: live.ConnectorKubernetes, Targets: targets, MaxLocalPrefill: 77, Threshold: true})
	})
	set(settingPlannerThresholds, "false")
	within(t, long, "the threshold is pinned", func() bool { got, _ := n.settings.planner(); return !got.Planner.Thresholds })
	set(settingRule, `"isl-bounding"`)
	within(t, long, "the threshold means nothing", func() bool { got, _ := n.settings.planner(); return !got.Threshold })
	set(settingPlannerPrefillMin, "0")
	set(settingEnforce, "true")
	within(t, long, "there is a prefill worker where prompts without one are refused", func() bool {
		got, err := n.settings.planner()
		return err == nil && !got.Planner.Aggregate && got.Planner.Prefill.Min == 1 && got.Planner.Validate() == nil
	})
	set(settingPlannerKubeDecode, `"deployments.apps/p"`)
	within(t, long, "workers in the same pods change their role", func() bool {
		got, err := n.settings.planner()
		return err == nil && !got.Planner.KeepRoles
	})
	set(settingPlannerDevices, "0")
	within(t, long, "pods have a bound", func() bool {
		_, err := n.settings.planner()
		return err != nil && strings.Contains(err.Error(), "planner.devices")
	})
	set(settingPlannerPrefillMin, "9")
	within(t, long, "what does not go together is named", func() bool {
		_, err := n.settings.planner()
		return err != nil && strings.Contains(err.Error(), "planner.prefill_max")
	})
}

// The predictors of the table are those that there are.
func TestPlannerPredictors(t *testing.T) {
	key, err := config.RuntimeKey(settingPlannerPredictor)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range key.Choices {
		if _, err := predict.Named(name); err != nil {
			t.Error(err)
		}
	}
	if have := predict.Names(); len(have) != len(key.Choices) {
		t.Errorf("%v, the table has %v", have, key.Choices)
	}
}
