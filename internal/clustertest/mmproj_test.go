package clustertest_test

import (
	"net/http"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/clustertest"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/patience"
)

// A GGUF model beside its mmproj file gives the same answers to questions about images as the
// folder that both were made of, with encode workers and without.
func TestMmprojOverHTTP(t *testing.T) {
	if patience.RaceDetector {
		t.Skip("other arithmetic in the same goroutines")
	}
	for _, family := range []string{"smolvlm", "qwen2_5_vl"} {
		t.Run(family, func(t *testing.T) {
			dir := modeltest.Sighted(t, family)
			answers := func(model string, encode, prefill int) (all []seen) {
				c := clustertest.Start(t, clustertest.Options{
					Model: model, Encode: encode, Prefill: prefill, Decode: 1, Engine: cluster.EngineSpec{BlockSize: 16, KVBlocks: 256},
				})
				if prefill > 0 {
					c.WaitRemotePrefill()
					c.Set(map[string]any{"disagg.conditional": "threshold", "disagg.max_local_prefill_length": 0})
				}
				for _, urls := range [][]string{{sketch(1, 80, 24)}, {sketch(2, 24, 64)}, {sketch(1, 80, 24), sketch(2, 24, 64)}} {
					all = append(all, look(t, c, urls...))
				}
				return all
			}
			want := answers(dir, 0, 0)
			for i, got := range answers(modeltest.VisionGGUF(t, dir, modeltest.MmprojForm{}), 1, 1) {
				if got.status != http.StatusOK || got.images == 0 || got.text == "" || got.text != want[i].text || got.prompt != want[i].prompt || got.images != want[i].images {
					t.Errorf("%d: %+v, want %+v", i, got, want[i])
				}
			}
		})
	}
}
