package config_test

import (
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/config"
)

// What is written for a value is read as the same value, and nothing else is read.
func TestRuntimeValues(t *testing.T) {
	texts := map[string][]string{
		"disagg.strategy": {"decode-first", "prefill-first"}, "disagg.overlap_kv_transfer": {"true", "false"},
		"disagg.max_local_prefill_tokens": {"0", "128"}, "disagg.max_prefill_queue_depth": {"7"},
		"disagg.remote_prefill_timeout": {"1m30s", "250ms"}, "disagg.enforce": {"true"}, "disagg.conditional": {"slo", "isl-or-load", `{"policy":"isl_bounding","eff_isl_threshold":7}`}, "router.policy": {"round-robin"},
		"router.active_decode_blocks_threshold": {"0", "0.85", "1"}, "router.active_prefill_tokens_threshold": {"0", "10000"}, "router.active_prefill_tokens_threshold_frac": {"1.5"},
		"router.session_affinity": {"off", "hard"}, "router.session_affinity_ttl": {"1h"}, "router.queue_policy": {"fcfs", "wspt"}, "frontend.record_load": {"true", "false"},
		"rollout.max_surge": {"0", "4", "25%"}, "rollout.max_unavailable": {"1%", "100%"},
		"planner.mode": {"off", "advise", "act"}, "planner.connector": {"topology", "kubernetes", "virtual"}, "planner.kubernetes_prefill": {"deployments.apps/x"}, "planner.kubernetes_decode": {"dynamographdeploymentscalingadapters.nvidia.com/y"}, "planner.goal": {"sla", "throughput", "cost"}, "planner.ttft": {"300ms"}, "planner.itl": {"20ms"}, "planner.percentile": {"1", "99"},
		"planner.devices": {"0", "8"}, "planner.prefill_min": {"2"}, "planner.prefill_max": {"3"}, "planner.decode_min": {"0"}, "planner.decode_max": {"4"},
		"planner.predictor": {"arima", "auto"}, "planner.interval": {"10s"}, "planner.forecast_interval": {"2m"}, "planner.cool_down": {"30s"}, "planner.thresholds": {"true", "false"}, "planner.action_timeout": {"30m"},
	}
	keys := config.RuntimeKeys()
	if len(keys) != len(texts) {
		t.Errorf("%d run-time settings, %d are tried", len(keys), len(texts))
	}
	for _, k := range keys {
		for _, text := range texts[k.Name] {
			v, err := k.ParseRuntime(text)
			if err != nil {
				t.Fatal(err)
			}
			raw, err := k.EncodeRuntime(v)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := k.DecodeRuntime(raw); err != nil || got != v || (config.Value{Value: got}).Text() != text {
				t.Errorf("%s=%s: stored as %s, read as %v %v", k.Name, text, raw, got, err)
			}
		}
		for _, raw := range []string{"", "null", "{", "[]", "1.5", "1e30", "-1", `"x"`, `"-5s"`, `"0s"`, `{"a":1}`} {
			if raw == "1.5" && k.Max > 1 && k.Kind == config.KindRatio {
				continue
			}
			if v, err := k.DecodeRuntime([]byte(raw)); err == nil || !strings.Contains(err.Error(), k.Name) {
				t.Errorf("%s is stored as %s: read as %v, %v", k.Name, raw, v, err)
			}
		}
	}
}

func FuzzDecodeRuntime(f *testing.F) {
	for _, s := range []string{"1", `"router"`, "true", `"30s"`, "null", ""} {
		f.Add([]byte(s))
	}
	keys := config.RuntimeKeys()
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, k := range keys {
			v, err := k.DecodeRuntime(raw)
			if err != nil {
				continue
			}
			again, err := k.EncodeRuntime(v)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := k.DecodeRuntime(again); err != nil || got != v {
				t.Errorf("%s: %v is written as %s and read as %v %v", k.Name, v, again, got, err)
			}
		}
	})
}
