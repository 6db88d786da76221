package cpu

import (
	"fmt"

	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/gguf"
)

// dequantized turns a quantized matrix into float32 on the Go heap. It stands in for
// products with quantized weights: four bytes a weight, which [Device.CopyBytes] and
// the node's check of its memory do not count.
func dequantized(t model.Tensor) ([]float32, error) {
	kind, ok := gguf.ParseType(string(t.DType))
	if !ok || !t.DType.Quantized() {
		return nil, fmt.Errorf("tensor %q has type %s", t.Name, t.DType)
	}
	out := make([]float32, t.Shape[0]*t.Shape[1])
	if err := gguf.Dequantize(out, kind, t.Data); err != nil {
		return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	return out, nil
}
