package gpu_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/mapped"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// A file that became shorter under its mapping is an error, and leaves nothing behind.
func TestTruncatedWeights(t *testing.T) {
	d := newDevice(t, newDriver(t, 1<<30))
	spec := modeltest.Spec{Family: "llama", Layers: 1, Hidden: 256, Heads: 4, KVHeads: 2, HeadDim: 64, FFN: 512, Vocab: 1024, DType: "bf16"}
	dir := modeltest.Generate(t, spec)
	m := open(t, dir, model.Options{})
	if err := os.Truncate(filepath.Join(dir, safetensors.SingleName), 4096); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Load(t.Context(), m); !errors.Is(err, mapped.ErrChanged) {
		t.Errorf("Load() = %v", err)
	}
}
