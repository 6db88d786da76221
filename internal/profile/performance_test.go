package profile

import (
	"math"
	"testing"
)

// Each answer is that of the profile of the role it is about, in seconds and tokens.
func TestPerformance(t *testing.T) {
	limits := Limits{KVBlocks: 100, BlockSize: 16, MaxSeqs: 8, MaxBatchTokens: 1000, MaxContext: 4096}
	prefill := &Profile{Devices: 1, Limits: limits, Step: Costs{Step: 0.01, Token: 0.0001}, KV: KV{BytesPerToken: 10, Bandwidth: 1e5, Latency: 0.002}, Overheads: Overheads{Frontend: 0.003, Delivery: 0.004}}
	decode := &Profile{Devices: 1, Limits: limits, Step: Costs{Step: 0.02, Decode: 0.001, DecodeContext: 1e-5}}
	decode.Limits.KVBlocks = 200
	both := Performance{prefill, decode}
	for _, tc := range []struct {
		name      string
		got, want float64
	}{
		{"TTFT", both.TTFT(499.6), 0.003 + 0.01 + 500*0.0001 + 0.004},
		{"TTFT in two steps", both.TTFT(1500), 0.003 + 2*0.01 + 1500*0.0001 + 0.004},
		{"TTFT of nothing", both.TTFT(0.2), prefill.TTFT(1)},
		{"prefill throughput", both.PrefillThroughput(500), 500 / (0.01 + 500*0.0001)},
		{"ITL", both.ITL(800, 400), 0.02 + 2*0.001 + 800*1e-5},
		{"KV capacity", both.KVCapacity(), 3200},
		{"decode throughput", both.DecodeThroughput(1, 400), 8 / (0.02 + 8*0.001 + 3200*1e-5)},
		{"handover", both.Handover(500), 0.002 + 500/1e4},
		{"handover of the last step", both.Handover(5000), 0.002 + 1000/1e4},
		{"one profile", decode.Performance().ITL(800, 400), decode.ITL(800, 400)},
		{"handover without KV", decode.Performance().Handover(500), 0},
	} {
		if math.Abs(tc.got-tc.want) > 1e-9*max(1, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, tc.got, tc.want)
		}
	}
}
