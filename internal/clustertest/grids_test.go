package clustertest_test

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/clustertest"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/patience"
)

// gridSeer generates a small Qwen2-VL or Qwen2.5-VL, which takes images of any size.
func gridSeer(t *testing.T, family string) (dir string) {
	t.Helper()
	return seerOf(t, family, "<|image_pad|>", "<|image_pad|>", map[string]any{
		"image_processor_type": "Qwen2VLImageProcessor", "processor_class": "Qwen2VLProcessor",
		"patch_size": 4, "merge_size": 2, "temporal_patch_size": 2, "min_pixels": 64, "max_pixels": 40 * 64,
	}, nil)
}

// Images of any size give the same text wherever they are encoded and prefilled: whoever
// decodes knows where the positions go on behind them.
func TestGridsOverHTTP(t *testing.T) {
	if patience.RaceDetector {
		t.Skip("other arithmetic in the same goroutines")
	}
	wide, high, small := sketch(1, 80, 24), sketch(2, 24, 64), sketch(3, 9, 9)
	for _, family := range []string{"qwen2_vl", "qwen2_5_vl"} {
		dir := gridSeer(t, family)
		var want []seen
		for _, tc := range []struct {
			name                    string
			encode, prefill, decode int
			transport, strategy     string
		}{
			{name: "alone", decode: 1},
			{name: "E+P+D", encode: 1, prefill: 1, decode: 1, transport: "tcp"},
			{name: "P+2D, prefill first", prefill: 1, decode: 2, strategy: "prefill-first"},
		} {
			t.Run(family+" "+tc.name, func(t *testing.T) {
				c := clustertest.Start(t, clustertest.Options{
					Model: dir, Encode: tc.encode, Prefill: tc.prefill, Decode: tc.decode, Engine: cluster.EngineSpec{BlockSize: 16, KVBlocks: 256},
					Config: func(cfg *config.Dynamod) {
						if tc.transport != "" {
							cfg.NIXL.Transports = []string{tc.transport}
						}
					},
				})
				if tc.prefill > 0 {
					c.WaitRemotePrefill()
					c.Set(map[string]any{"disagg.conditional": "threshold", "disagg.max_local_prefill_length": 0})
				}
				if tc.strategy != "" {
					c.Set(map[string]any{"disagg.strategy": tc.strategy})
				}
				// 80 × 24 pixels are 10 × 3 squares of 8, 24 × 64 are 3 × 8, and 9 × 9 one.
				got := lookAll(t, c, [][]string{{wide}, {high}, {wide, high}, {high, wide}, {small, small, wide}}, []int{30, 24, 54, 54, 32}, want)
				if want == nil {
					want = got
				}
			})
		}
	}
}

// Embeddings that were computed elsewhere need the grid of their patches.
func TestGridEmbeddingsOverHTTP(t *testing.T) {
	dir, local := gridSeer(t, "qwen2_vl"), t.TempDir()
	c := clustertest.Start(t, clustertest.Options{Model: dir, Prefill: 1, Decode: 1, Config: func(cfg *config.Dynamod) { cfg.Multimodal.AllowedLocalMediaPath = local }})
	file := func(name string, grid ...uint32) string {
		path := filepath.Join(local, name+".safetensors")
		header := `{"mm_embeddings":{"dtype":"F32","shape":[6,32],"data_offsets":[0,768]}`
		if len(grid) > 0 {
			header += fmt.Sprintf(`,"image_grid_thw":{"dtype":"I32","shape":[1,3],"data_offsets":[768,%d]}`, 768+4*len(grid))
		}
		header += "}"
		b := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
		for i := range 6 * 32 {
			b = binary.LittleEndian.AppendUint32(b, 0x3f000000+uint32(i%7)<<20)
		}
		for _, n := range grid {
			b = binary.LittleEndian.AppendUint32(b, n)
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	wide, high := look(t, c, file("wide", 1, 4, 6)), look(t, c, file("high", 1, 12, 2))
	if wide.status != http.StatusOK || high.status != http.StatusOK || wide.images != 6 || wide.text == high.text {
		t.Errorf("%+v\n%+v", wide, high)
	}
	for path, problem := range map[string]string{file("none"): "image_grid_thw", file("other", 1, 4, 8): "for 6 rows"} {
		if s := look(t, c, path); s.status != http.StatusBadRequest || !strings.Contains(s.problem, problem) || s.param != "messages[0].content[1].image_url.url" {
			t.Errorf("%+v", s)
		}
	}
}
