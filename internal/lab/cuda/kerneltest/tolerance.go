package kerneltest

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/dynctl/dynctl/internal/kvlayout"
)

// Tolerance of bf16 and float32 outputs: a number of units in the last place of bf16,
// or a share of scale, the size that values have.
type Tolerance struct {
	Ulps   float64
	Scale  float64
	Float  bool // float32; else bf16
	Counts bool // whole numbers, which must be equal
	// KV is of a block pool of int8: values may be off by one, scales by some last bits.
	KV *kvlayout.Shape
}

// What results may differ by.
var (
	// Exact is for whole numbers and copied bytes.
	Exact = Tolerance{Counts: true}
	// OneUlp is for operations that round once: their float32 arithmetic moves a result to
	// the neighbor at most.
	OneUlp = Tolerance{Ulps: 1, Scale: 1e-3}
	// Attended is for weighted means of values around 1. Weights are rounded to bf16 before
	// they multiply values, which moves a result by up to 2^-9 of the values' size; the result
	// is rounded once more.
	Attended = Tolerance{Ulps: 1.5, Scale: 0.5}
)

// SumOf is for sums of n products of values around 1, which are around the root of n.
// The sum of float32 may be off by n units of 2^-24 of that; a result in bf16 is far
// coarser, unless it is small by cancellation.
func SumOf(n int, float bool) Tolerance {
	size := math.Sqrt(float64(n))
	if float {
		return Tolerance{Ulps: size * 0x1p-16, Scale: size, Float: true}
	}
	return Tolerance{Ulps: 1, Scale: size / 256}
}

// Of is the difference that is tolerated beside a value.
func (t Tolerance) Of(value float64) float64 {
	_, exponent := math.Frexp(max(math.Abs(value), t.Scale, 0x1p-126))
	return t.Ulps * math.Ldexp(1, exponent-8)
}

// Value is the i-th value, and how many there are is [Output.Len].
func (o Output) Value(i int) float64 {
	switch {
	case o.Near.Counts || o.Near.KV != nil:
		return float64(o.Memory[i])
	case o.Near.Float:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(o.Memory[4*i:])))
	}
	return BF16(binary.LittleEndian.Uint16(o.Memory[2*i:])).Float()
}

// Len is the number of values, of bytes where those are counted.
func (o Output) Len() int {
	switch {
	case o.Near.Counts || o.Near.KV != nil:
		return len(o.Memory)
	case o.Near.Float:
		return len(o.Memory) / 4
	}
	return len(o.Memory) / 2
}

// Differs returns the worst difference that is not tolerated.
func (o Output) Differs(want Output) error {
	if o.Near.KV != nil {
		return differsInt8(o.Memory, want.Memory, *o.Near.KV)
	}
	if o.Near.Counts {
		for i, b := range o.Memory {
			if b != want.Memory[i] {
				return fmt.Errorf("byte %d is %#x, and should be %#x", i, b, want.Memory[i])
			}
		}
		return nil
	}
	var worst float64
	var err error
	for i := range o.Len() {
		got, should := o.Value(i), want.Value(i)
		allowed := o.Near.Of(should)
		d := math.Abs(got - should)
		if got == should || d <= allowed || math.IsNaN(got) && math.IsNaN(should) {
			continue
		}
		if over := d / allowed; !(over <= worst) {
			worst, err = over, fmt.Errorf("value %d is %g, and should be %g ± %g", i, got, should, allowed)
		}
	}
	return err
}

// differsInt8 compares pools of int8 KV: a value next to the border of two may become either
// one, and a scale is a quotient of what was computed.
func differsInt8(got, want []byte, shape kvlayout.Shape) error {
	for region := 0; region < len(want); region += shape.RegionBytes() {
		scales := region + shape.ScaleOffset()
		for i := region; i < scales; i++ {
			if d := int(int8(got[i])) - int(int8(want[i])); d < -1 || d > 1 {
				return fmt.Errorf("byte %d is %d, and should be %d ± 1", i, int8(got[i]), int8(want[i]))
			}
		}
		for i := scales; i < region+shape.RegionBytes(); i += 4 {
			value := func(b []byte) float64 {
				return float64(math.Float32frombits(binary.LittleEndian.Uint32(b[i:])))
			}
			g, w := value(got), value(want)
			if !(math.Abs(g-w) <= 1e-5*math.Abs(w)) && !(math.IsNaN(g) && math.IsNaN(w)) {
				return fmt.Errorf("the scale at byte %d is %g, and should be %g", i, g, w)
			}
		}
	}
	return nil
}
