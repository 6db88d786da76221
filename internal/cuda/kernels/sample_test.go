package kernels_test

import (
	"testing"

	"github.com/dynctl/dynctl/internal/cuda/kernels"
)

// Structures on the device have the sizes that are said.
func TestSampleLayout(t *testing.T) {
	if n := len((&kernels.Sampling{}).Append(nil)); n != kernels.SamplingBytes {
		t.Errorf("Sampling has %d bytes", n)
	}
	if n := len((&kernels.Adjustment{}).Append(nil)); n != kernels.AdjustmentBytes {
		t.Errorf("Adjustment has %d bytes", n)
	}
}
