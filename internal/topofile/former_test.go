package topofile

import (
	"strings"
	"testing"
)

// What the release before called otherwise is read, and told.
func TestFormerSpellings(t *testing.T) {
	f, err := Parse(Source{Name: "t.yaml"}, []byte(`
engine: {max_seqs: 8, kv_dtype: int8}
decode:
  workers: 1
  engine:
    max_batch_tokens: 512
disagg:
  strategy: router
  background_prefill: false
`))
	if err != nil {
		t.Fatal(err)
	}
	top := f.Topology
	if top.Engine.MaxSeqs != 8 || top.Engine.KVDType != "int8" || top.DecodeSpec.Engine.MaxBatchTokens != 512 || string(f.Settings["disagg.strategy"]) != `"prefill-first"` || string(f.Settings["disagg.overlap_kv_transfer"]) != "false" {
		t.Errorf("read %+v", f)
	}
	got := strings.Join(f.Notes, "\n")
	for _, want := range []string{
		"t.yaml:2: engine.max_seqs is called engine.max_num_seqs now", "t.yaml:2: engine.kv_dtype is called engine.kv_cache_dtype now",
		"t.yaml:6: decode.engine.max_batch_tokens is called decode.engine.max_num_batched_tokens now",
		"t.yaml:8: the value router of disagg.strategy is called prefill-first now", "t.yaml:9: disagg.background_prefill is called disagg.overlap_kv_transfer now",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not told:\n%s", want, got)
		}
	}
	if err := f.Set("decode.engine.max_seqs=3", Source{}); err != nil || f.Topology.DecodeSpec.Engine.MaxSeqs != 3 || !strings.Contains(strings.Join(f.Notes, "\n"), "--set decode.engine.max_seqs=3: ") {
		t.Errorf("set: %v %+v", err, f)
	}
	if _, err := Parse(Source{Name: "t.yaml"}, []byte("decode: 1\nengine: {max_seqs: 8, max_num_seqs: 9}\n")); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("both names: %v", err)
	}
}
