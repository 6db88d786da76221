package gpucheck

import (
	"reflect"
	"testing"
)

// Figures are compared with what is known of a device, else with what was measured on it,
// and never with what is pretended.
func TestRates(t *testing.T) {
	floor := Result{Case: copyFloor, End: Passed, Figure: 3000, Unit: "GB/s", About: About{Device: "NVIDIA H100 80GB HBM3"}}
	h200, pretended, failed := floor, floor, floor
	h200.Device, pretended.Pretended, failed.End = "NVIDIA H200", true, Failed
	product := Result{Case: torchFloor, End: Passed, Figure: 700, Unit: "TFLOP/s"}
	better := Result{Case: cublasFloor, End: Passed, Figure: 720, Unit: "TFLOP/s"}
	for name, c := range map[string]struct {
		results []Result
		want    *Rates
	}{
		"nothing":               {nil, nil},
		"pretended":             {[]Result{pretended, product}, nil},
		"failed":                {[]Result{failed, product}, nil},
		"a known device":        {[]Result{product, h200}, &Rates{4.3e12, 788e12, "measured on an H200"}},
		"the better product":    {[]Result{product, floor, better}, &Rates{3e12, 720e12, "floor/copy, floor/matmul-cublaslt"}},
		"memory":                {[]Result{floor}, &Rates{3e12, 0, copyFloor}},
		"memory and arithmetic": {[]Result{product, floor}, &Rates{3e12, 700e12, "floor/copy, torch/matmul-8192"}},
	} {
		if got := ratesOf(c.results); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// The floor of an operation is what memory or arithmetic takes, whichever is longer.
func TestCost(t *testing.T) {
	full, memory := &Rates{BytesPerSecond: 1e12, FLOPPerSecond: 1e14}, &Rates{BytesPerSecond: 1e12}
	for _, c := range []struct {
		rates             *Rates
		bytes, operations float64
		want              float64 // microseconds
	}{
		{full, 1e6, 0, 1}, {full, 1e6, 1e7, 1}, {full, 1e6, 1e9, 10},
		{memory, 1e6, 1e7, 1}, {memory, 1e6, 1e9, 0}, {nil, 1e6, 1e7, 0},
	} {
		f := finding{took: 2e-5}
		f.cost(c.rates, c.bytes, c.operations)
		if got := f.least * 1e6; got < c.want*0.999 || got > c.want*1.001 {
			t.Errorf("%g bytes and %g operations take %g us at least, want %g", c.bytes, c.operations, got, c.want)
		}
		if f.also["gb_per_s"] != c.bytes/2e-5/1e9 {
			t.Errorf("figures %v", f.also)
		}
	}
}
