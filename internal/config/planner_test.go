package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/config"
)

// Settings of the planner that do not go together are named.
func TestPlannerCheck(t *testing.T) {
	good := config.Planner{TTFT: time.Second, ITL: time.Second, DecodeMin: 1, Interval: 5 * time.Second, ForecastInterval: time.Minute, ActionTimeout: time.Minute}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*config.Planner){
		"planner.prefill_max: 1 is less than planner.prefill_min, 2": func(p *config.Planner) { p.PrefillMin, p.PrefillMax = 2, 1 },
		"planner.decode_max: 2 is less than planner.decode_min, 3":   func(p *config.Planner) { p.DecodeMin, p.DecodeMax = 3, 2 },
		"planner.devices: 2 is less than":                            func(p *config.Planner) { p.Devices, p.PrefillMin = 2, 2 },
		"planner.interval: 2m is not":                                func(p *config.Planner) { p.Interval, p.ForecastInterval = 2*time.Minute, time.Hour },
		"planner.interval: 10ms is not":                              func(p *config.Planner) { p.Interval = 10 * time.Millisecond },
		"planner.forecast_interval: 1s is less than":                 func(p *config.Planner) { p.ForecastInterval = time.Second },
		"planner.action_timeout: 10ms is less than":                  func(p *config.Planner) { p.ActionTimeout = 10 * time.Millisecond },
		"planner.ttft: 0 cannot be held":                             func(p *config.Planner) { p.TTFT = 0 },
		"planner.itl: 0 cannot be held":                              func(p *config.Planner) { p.ITL = 0 },
	} {
		p := good
		change(&p)
		if err := p.Check(); err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), ": ", " "), strings.ReplaceAll(want, ": ", " ")) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	key, err := config.RuntimeKey("planner.mode")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := key.ParseRuntime("act"); err != nil {
		t.Error(err)
	}
}
