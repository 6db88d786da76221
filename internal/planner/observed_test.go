package planner

import (
	"testing"
	"time"
)

// What workers show must fit on those that are left, whatever the evaluator says: 200,000 tokens of KV on one
// worker would be an ITL of 11.7 ms.
func TestConsolidates(t *testing.T) {
	s := newScene(t, config(), Plan{Prefill: 2, Decode: 2})
	s.run(2, 40)
	s.plan = Plan{Prefill: 2, Decode: 2}
	for _, tc := range []struct {
		name   string
		kv     int           // of each decode worker
		busy   time.Duration // of each prefill worker, in 5 s
		target Plan
		want   bool
	}{
		{"idle", 10_000, time.Second, Plan{Prefill: 1, Decode: 1}, true},
		{"much KV", 100_000, time.Second, Plan{Prefill: 1, Decode: 1}, false},
		{"much KV that stays where it is", 100_000, time.Second, Plan{Prefill: 1, Decode: 2}, true},
		{"busy with prompts", 10_000, 3 * time.Second, Plan{Prefill: 1, Decode: 1}, false},
		{"busy with prompts, which stay where they are", 10_000, 3 * time.Second, Plan{Prefill: 2, Decode: 1}, true},
	} {
		o := s.observation(40)
		for i := range o.Decode.Workers {
			o.Decode.Workers[i].KVTokens = tc.kv
			o.Prefill.Workers[i].PromptBusy = tc.busy
		}
		if got := s.p.consolidates(o, tc.target); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}
