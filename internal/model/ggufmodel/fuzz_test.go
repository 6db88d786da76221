package ggufmodel_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/gguf/gguftest"
	"github.com/dynctl/dynctl/internal/model/ggufmodel"
)

// FuzzOpen opens whole files and makes every small tensor of those that are well
// formed.
func FuzzOpen(f *testing.F) {
	seed := func(k keys, more func(b *gguftest.Builder)) {
		var b gguftest.Builder
		for name, v := range k {
			b.Key(full(k["general.architecture"].(string), name), v)
		}
		more(&b)
		f.Add(b.Bytes())
	}
	seed(llama(), func(b *gguftest.Builder) {
		b.Tensor("token_embd.weight", gguf.Q8_0, []int{1, 32}, make([]byte, 34))
		b.Tensor("blk.0.attn_q.weight", gguf.F16, []int{8, 2}, make([]byte, 32))
		b.Tensor("blk.0.attn_k.bias", gguf.F32, []int{4}, make([]byte, 16))
		b.Tensor("rope_freqs.weight", gguf.F32, []int{4}, make([]byte, 16))
	})
	seed(llama().with(keys{"general.architecture": "gemma2"}), func(b *gguftest.Builder) {
		b.Tensor("blk.1.ffn_norm.weight", gguf.BF16, []int{2}, make([]byte, 4))
	})
	seed(llama().with(keys{".expert_count": uint32(2), ".expert_used_count": uint32(1)}), func(b *gguftest.Builder) {
		b.Tensor("blk.1.ffn_up_exps.weight", gguf.Q4_0, []int{2, 2, 32}, make([]byte, 72))
	})
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "m.gguf")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := ggufmodel.Open(path, "")
		if err != nil {
			return
		}
		defer c.Close()
		if raw, ok := c.Files()["config.json"]; ok && !json.Valid(raw) {
			t.Fatalf("not JSON: %s", raw)
		}
		for _, name := range c.Names() {
			described, _ := c.Lookup(name)
			tensor, ok := c.Tensor(name)
			weights := 1
			for _, d := range tensor.Shape {
				weights *= d
			}
			if !ok || described.DType != tensor.DType {
				t.Fatalf("%s: %+v, described as %+v", name, tensor, described)
			}
			if _, size := tensor.DType.Block(); size > 0 && len(tensor.Data) != tensor.DType.Bytes(weights) {
				t.Fatalf("%s of shape %v has %d bytes", name, tensor.Shape, len(tensor.Data))
			}
		}
	})
}
