package cluster

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestTopologyValidate(t *testing.T) {
	model := ModelSpec{Name: "m", Path: "/m"}
	for _, tc := range []struct {
		name  string
		top   Topology
		wrong string // field named by the error; empty: valid
	}{
		{"nothing", Topology{}, ""},
		{"aggregated", Topology{Model: model, Decode: 1}, ""},
		{"2P4D", Topology{Model: model, Prefill: 2, Decode: 4}, ""},
		{"as many as allowed", Topology{Model: model, Prefill: MaxWorkersPerRole, Decode: MaxWorkersPerRole}, ""},
		{"negative prefill", Topology{Model: model, Prefill: -1, Decode: 1}, "prefill"},
		{"negative decode", Topology{Model: model, Decode: -1}, "decode"},
		{"too many prefill", Topology{Model: model, Prefill: MaxWorkersPerRole + 1, Decode: 1}, "prefill"},
		{"too many decode", Topology{Model: model, Decode: MaxWorkersPerRole + 1}, "decode"},
		{"prefill alone", Topology{Model: model, Prefill: 1}, "decode"},
		{"encode", Topology{Model: model, Prefill: 1, Decode: 1, Encode: MaxWorkersPerRole}, ""},
		{"encode for decode alone", Topology{Model: model, Decode: 1, Encode: 1}, ""},
		{"encode alone", Topology{Model: model, Encode: 1}, "decode"},
		{"encode without a model", Topology{Model: ModelSpec{Path: "/m"}, Decode: 1, Encode: 1}, "model"},
		{"encode for the built-in model of text", Topology{Model: ModelSpec{Name: "served"}, Decode: 1, Encode: 1}, "encode"},
		{"mock encode for the built-in model of text", Topology{Model: ModelSpec{Name: "served"}, Engine: EngineSpec{Backend: BackendMock}, Decode: 1, Encode: 1}, "encode"},
		{"encode for the built-in model that sees", Topology{Model: ModelSpec{Name: "served", Path: BuiltinVisionName}, Decode: 1, Encode: 1}, ""},
		{"negative encode", Topology{Model: model, Decode: 1, Encode: -1}, "encode"},
		{"too many encode", Topology{Model: model, Decode: 1, Encode: MaxWorkersPerRole + 1}, "encode"},
		{"no model", Topology{Decode: 1}, "model"},
		{"no model and no workers", Topology{Engine: EngineSpec{BlockSize: 16}}, ""},
		{"block size 16", Topology{Engine: EngineSpec{BlockSize: 16}}, ""},
		{"block size 128", Topology{Engine: EngineSpec{BlockSize: 128}}, ""},
		{"block size 48", Topology{Engine: EngineSpec{BlockSize: 48}}, "block_size"},
		{"kv dtype", Topology{Engine: EngineSpec{KVDType: "int8"}}, ""},
		{"kv dtype auto", Topology{Engine: EngineSpec{KVDType: "auto"}}, ""},
		{"kv dtype f16", Topology{Engine: EngineSpec{KVDType: "f16"}}, "kv_cache_dtype"},
		{"block size -64", Topology{Engine: EngineSpec{BlockSize: -64}}, "block_size"},
		{"block size 256", Topology{Engine: EngineSpec{BlockSize: 256}}, "block_size"},
		{"negative pool", Topology{Engine: EngineSpec{KVBlocks: -1}}, "kv_blocks"},
		{"unknown weights", Topology{Model: ModelSpec{Quantize: "q5"}}, "quantize"},
		{"negative context", Topology{Engine: EngineSpec{MaxModelLen: -1}}, "max_model_len"},
		{"negative sequences", Topology{Engine: EngineSpec{MaxSeqs: -1}}, "max_num_seqs"},
		{"negative batch", Topology{Engine: EngineSpec{MaxBatchTokens: -1}}, "max_num_batched_tokens"},
		{"ranks", Topology{Engine: EngineSpec{TensorParallel: 4}}, ""},
		{"negative ranks", Topology{Engine: EngineSpec{TensorParallel: -2}}, "tensor_parallel"},
		{"target", Topology{Engine: EngineSpec{ITLTargetMS: 100}}, ""},
		{"negative target", Topology{Engine: EngineSpec{ITLTargetMS: -1}}, "itl_target"},
		{"target of days", Topology{Engine: EngineSpec{ITLTargetMS: 1 << 40}}, "itl_target"},
		{"speculation", Topology{Engine: EngineSpec{Speculative: Speculative{Method: SpeculativeNgram}}}, ""},
		{"unknown speculation", Topology{Engine: EngineSpec{Speculative: Speculative{Method: "eagle"}}}, "speculative"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := tc.top.Validate()
			if tc.wrong == "" && err != nil || tc.wrong != "" && (err == nil || !strings.HasPrefix(err.Error(), tc.wrong+": ")) {
				t.Errorf("got %v, want an error about %q", err, tc.wrong)
			}
		})
	}
}

func TestTopologyCount(t *testing.T) {
	top := Topology{Prefill: 2, Decode: 4, Encode: 1}
	if top.Count(RolePrefill) != 2 || top.Count(RoleDecode) != 4 || top.Count(RoleEncode) != 1 || top.Count("") != 0 || top.Workers() != 7 {
		t.Error("counts")
	}
}

func TestCounts(t *testing.T) {
	c := Counts{RoleEncode: 0, RolePrefill: 2}
	if got := c.String(); got != "prefill=2 encode=0" {
		t.Errorf("%q", got)
	}
	for counts, want := range map[[3]int]bool{{2, 9, 0}: true, {2, 9, 1}: false, {1, 0, 0}: false} {
		top := Topology{Prefill: counts[0], Decode: counts[1], Encode: counts[2]}
		if top.Asks(c) != want || !top.Asks(nil) {
			t.Errorf("%+v asks for %s: %v, want %v", top, c, !want, want)
		}
	}
}

func TestKVUsed(t *testing.T) {
	s := WorkerStats{KVTotal: 100, KVActive: 1, KVCached: 50, KVIncoming: 2, KVOutgoing: 4, Quarantined: 8}
	if s.KVUsed() != 15 {
		t.Errorf("used %d, want 15", s.KVUsed())
	}
}

// What is not known is null or absent in JSON, never a made-up zero.
func TestUnknownValuesInJSON(t *testing.T) {
	b, err := json.Marshal(struct {
		Worker  Worker
		Queue   QueueStats
		Latency Latency
		A       Assignment
	}{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"lease_left_ns":null`, `"uptime_ns":null`, `"tokens_per_s":null`, `"prefix_hit_ratio":null`, `"prefill_queue":null`,
		`"in_flight":null`, `"p99":null`, `"kv_transfer_ms_mean":null`,
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %s in %s", want, b)
		}
	}
	if strings.Contains(string(b), "drain_deadline") || strings.Contains(string(b), "retry_at") {
		t.Errorf("zero times are written: %s", b)
	}
}

func TestPercentilesOf(t *testing.T) {
	if p := PercentilesOf(Histogram{}); p.P50 != nil || p.P95 != nil || p.P99 != nil {
		t.Errorf("of nothing: %+v", p)
	}
	var h Histogram
	for i := range 100 {
		h.Observe(time.Duration(i+1) * 10 * time.Millisecond)
	}
	p := PercentilesOf(h)
	for _, c := range []struct{ got, want float64 }{{*p.P50, 500}, {*p.P95, 950}, {*p.P99, 990}} {
		if c.got < c.want*(1-bound) || c.got > c.want*(1+bound) {
			t.Errorf("got %v ms, want %v", c.got, c.want)
		}
	}
}

// Topologies without encode workers are stored as before, and those of before have none.
func TestTopologyWithoutEncode(t *testing.T) {
	b, err := json.Marshal(Topology{Model: ModelSpec{Name: "m"}, Prefill: 1, Decode: 2})
	if err != nil || strings.Contains(string(b), "encode") {
		t.Errorf("written %s, %v", b, err)
	}
	var back Topology
	if err := json.Unmarshal(b, &back); err != nil || back.Count(RoleEncode) != 0 || back.RoleSpec(RoleEncode) != (RoleSpec{}) {
		t.Errorf("read %+v, %v", back, err)
	}
	with := Topology{Decode: 1, Encode: 3, EncodeSpec: RoleSpec{Quantize: "q8_0", Engine: EngineSpec{Device: "cpu"}}}
	if b, err = json.Marshal(with); err != nil || !strings.Contains(string(b), `"encode":3,`) {
		t.Errorf("written %s, %v", b, err)
	}
	if back = (Topology{}); json.Unmarshal(b, &back) != nil || !back.Equal(with) {
		t.Errorf("read %+v, want %+v", back, with)
	}
	var taken Topology
	if taken.Take(with); !taken.Equal(with) {
		t.Errorf("taken over %+v, want %+v", taken, with)
	}
}

// Topologies that the release before has stored keep their limits.
func TestEngineSpecOfTheReleaseBefore(t *testing.T) {
	var a Topology
	if err := json.Unmarshal([]byte(`{"engine":{"kv_dtype":"int8","max_seqs":8,"max_batch_tokens":512,"kv_blocks":3}}`), &a); err != nil {
		t.Fatal(err)
	}
	if want := (EngineSpec{KVDType: "int8", MaxSeqs: 8, MaxBatchTokens: 512, KVBlocks: 3}); a.Engine != want {
		t.Errorf("read %+v", a.Engine)
	}
	b, _ := json.Marshal(a.Engine)
	if want := `{"kv_blocks":3,"kv_cache_dtype":"int8","max_num_seqs":8,"max_num_batched_tokens":512}`; string(b) != want {
		t.Errorf("written %s", b)
	}
}
