package kernel

import (
	"math"
	"unsafe"

	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// The functions of this file state in Go what each kernel computes, with the same
// operations in the same order, so that their results are equal in every bit. Tests
// compare the two.

// fma is x·y + z, rounded once. The product is exact in float64; the sum is rounded
// to odd there, so that rounding it to float32 is like rounding the exact sum.
func fma(x, y, z float32) float32 {
	p, c := float64(x)*float64(y), float64(z)
	s := p + c
	b := s - p
	err := (p - (s - b)) + (c - b)
	if err != 0 && err == err && !math.IsInf(s, 0) {
		if bits := math.Float64bits(s); bits&1 == 0 {
			if (err > 0) == (s > 0) {
				bits++
			} else {
				bits--
			}
			s = math.Float64frombits(bits)
		}
	}
	return float32(s)
}

func widen(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// weight is that of one output and k in a panel.
func weight(t Type, panel unsafe.Pointer, width, cols, output, k int) float32 {
	n := (cols + 1) &^ 1 * width
	switch t {
	case F32:
		return unsafe.Slice((*float32)(panel), n)[k*width+output]
	case F16:
		return safetensors.FromF16(unsafe.Slice((*uint16)(panel), n)[k*width+output])
	}
	return widen(unsafe.Slice((*uint16)(panel), n)[k/2*2*width+2*output+k%2])
}

func productGo(t Type, width, m int, c *Call) {
	for i := range m {
		x, out := unsafe.Slice(c.Src[i], c.Cols), unsafe.Slice(c.Dst[i], width)
		for o := range width {
			var sum float32
			for k := range c.Cols {
				sum = fma(weight(t, c.Panel, width, c.Cols, o, k), x[k], sum)
			}
			out[o] = sum
		}
	}
}

// shift moves a pointer by bytes.
func shift(p *float32, bytes int) *float32 { return (*float32)(unsafe.Add(unsafe.Pointer(p), bytes)) }

func sumSquaresGo(x []float32) float32 {
	var sums [16]float32
	for i, v := range x {
		sums[i%16] = fma(v, v, sums[i%16])
	}
	for n := 8; n > 0; n /= 2 {
		for i := range n {
			sums[i] += sums[i+n]
		}
	}
	return sums[0]
}

func scaleByGo(dst, x, weight []float32, scale float32) {
	for i := range dst {
		dst[i] = float32(x[i]*scale) * weight[i]
	}
}

func swigluGo(gate, up []float32) {
	for i, g := range gate {
		gate[i] = g / (1 + expf(-g)) * up[i]
	}
}

func geluGo(x []float32, linear, cubic float32) {
	for i, v := range x {
		x[i] = v / (1 + expf(-float32(v*(linear+float32(float32(v*v)*cubic)))))
	}
}

func rotateGo(lo, hi, cos, sin []float32, scale float32) {
	for i, a := range lo {
		b, c, s := hi[i], cos[i], sin[i]
		lo[i] = (float32(a*c) - float32(b*s)) * scale
		hi[i] = (float32(b*c) + float32(a*s)) * scale
	}
}

func blendGo(sum, part []float32, keep, take float32) {
	for i := range sum {
		sum[i] = float32(sum[i]*keep) + float32(part[i]*take)
	}
}

func scaleGo(dst, x []float32, factor float32) {
	for i := range dst {
		dst[i] = x[i] * factor
	}
}

func widenBF16Go(dst []float32, src []uint16) {
	for i, v := range src {
		dst[i] = widen(v)
	}
}

// expf is that of package cpu, whose tests hold the two together.
func expf(x float32) float32 {
	switch {
	case x != x:
		return x
	case x > 88.72283:
		return float32(math.Inf(1))
	case x < -87.33654:
		return 0
	}
	n := float32(math.Floor(float64(float32(x*1.44269504088896341) + 0.5)))
	x -= float32(n * 0.693359375)
	x -= float32(n * -2.12194440e-4)
	y := float32(1.9875691500e-4)
	for _, c := range [...]float32{1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1} {
		y = float32(y*x) + c
	}
	y = float32(y*float32(x*x)) + x + 1
	half := int32(n) / 2
	return y * pow2(half) * pow2(int32(n)-half)
}

func pow2(n int32) float32 { return math.Float32frombits(uint32(n+127) << 23) }
