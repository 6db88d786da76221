package clustertest_test

import (
	"math"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/bench"
	"github.com/dynctl/dynctl/internal/bench/arrival"
	"github.com/dynctl/dynctl/internal/bench/workload"
	"github.com/dynctl/dynctl/internal/clustertest"
	"github.com/dynctl/dynctl/internal/openai"
	"github.com/dynctl/dynctl/internal/patience"
)

// A load on a real cluster: prompts have the wanted length by the cluster's own tokenizer,
// answers are as long as asked for, and prompts that begin alike come from the prefix cache.
func TestBenchOnACluster(t *testing.T) {
	if patience.RaceDetector {
		t.Skip("the client has races looked for in internal/bench")
	}
	t.Parallel()
	c := clustertest.Start(t, clustertest.Options{Prefill: 1, Decode: 1})
	client, err := openai.New(c.URL, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	client.Limit(64)
	load := bench.Config{
		Model: c.Model, MaxInFlight: 64, Timeout: time.Minute, ExactLength: true, Seed: 3, Conversations: 12, Warmup: 2,
		Source:   workload.Synthetic{Input: workload.Fixed(160), Output: workload.Fixed(6), Share: 0.9, Prefixes: 1, Turns: 1, Seed: 3},
		Arrivals: arrival.New(arrival.Constant(20), true, 3).Next,
	}
	for api, ask := range map[string]bench.Ask{"chat": client.Chat, "completions": client.Complete} {
		load.Ask, load.Text = ask, api == "completions"
		scale, counts, err := bench.Calibrate(t.Context(), load, 512)
		if err != nil || !counts {
			t.Fatalf("%s: %+v, %t, %v", api, scale, counts, err)
		}
		load.Scale = scale
		r := bench.Run(t.Context(), load)
		if r.Succeeded != 12 || r.Failed != 0 || r.Uncounted != 0 || r.Output.Total != 12*6 || r.Finish["length"] != 12 || r.API != api {
			t.Fatalf("%s: %+v", api, r.Result)
		}
		if mean := r.Input.Real.Mean.Value; math.Abs(mean-160) > 8 {
			t.Errorf("%s: prompts of %.1f tokens, want 160", api, mean)
		}
		if r.CachedShare < 0.5 {
			t.Errorf("%s: %.2f of the prompts were cached, and 0.9 of them are the same", api, r.CachedShare)
		}
		if r.TTFT.P50.Value <= 0 || r.E2E.P50.Value < r.TTFT.P50.Value || r.TPOT == nil {
			t.Errorf("%s: %+v", api, r.Result)
		}
	}
}
