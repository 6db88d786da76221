package inspect_test

import (
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/inspect"
	"github.com/dynctl/dynctl/internal/model/modeltest"
)

// A checkpoint of fp8 is told with a byte for each weight, its scales, and what is not followed.
func TestLookAtFP8(t *testing.T) {
	dir := modeltest.Generate(t, modeltest.Spec{Layers: 1, Hidden: 128, Heads: 4, FFN: 256, Vocab: 300, DType: "bf16"})
	stored, _ := modeltest.FP8(t, dir, modeltest.FP8Specs()["one scale, static"])
	r := inspect.Look(t.Context(), stored)
	if !r.Servable || r.Parameters.Unused != 7 { // scales of activations
		t.Errorf("problems %v, %d parameters are not used", r.Problems, r.Parameters.Unused)
	}
	const weights = 4*128*128 + 3*128*256
	if len(r.DTypes) != 3 || r.DTypes[0] != (inspect.DType{Name: "F8_E4M3", Tensors: 7, Parameters: weights, Bytes: weights}) {
		t.Errorf("types %+v", r.DTypes)
	}
	if told := strings.Join(r.Warnings, "\n"); !strings.Contains(told, "scales of activations are not used") {
		t.Errorf("warnings %q", told)
	}
}
