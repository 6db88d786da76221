package kerneltest

import (
	"math"

	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/lab/cuda/fake"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// matrix is weights of a type on the device.
type matrix struct {
	kind       kernels.WeightType
	at, scales uint64
}

// of gives a kernel its type of weights.
func of(kind kernels.WeightType, kernel func(*fake.Call, matrix)) func(*fake.Call) {
	return func(c *fake.Call) { kernel(c, matrix{kind: kind}) }
}

// place reads where the weights are from the arguments.
func (m *matrix) place(c *fake.Call) {
	m.at = c.Pointer()
	if m.kind != kernels.BF16 {
		m.scales = c.Pointer()
	}
}

// rows are n rows of in values from the first on.
func (m *matrix) rows(c *fake.Call, first, n, in int) []float64 {
	weights, scales := m.kind.Bytes(first, in)
	size, scaleSize := m.kind.Bytes(n, in)
	data := c.Read(m.at+uint64(weights), size)
	values := make([]float64, n*in)
	switch m.kind {
	case kernels.BF16:
		return Floats(view[BF16](data, n*in))
	case kernels.Q8_0:
		width := int(scaleSize) / 2 / n
		halves := read[uint16](c, m.scales+uint64(scales), n*width)
		for i, b := range data {
			values[i] = float64(int8(b)) * float64(safetensors.FromF16(halves[i/in*width+i%in/32]))
		}
	case kernels.E4M3:
		by := read[float32](c, m.scales+uint64(scales), n)
		for i, b := range data {
			values[i] = e4m3s[b] * float64(by[i/in])
		}
	case kernels.E4M3Blocks:
		width := int(scaleSize) / 4 / n
		by := read[float32](c, m.scales+uint64(scales), n*width)
		for i, b := range data {
			values[i] = e4m3s[b] * float64(by[i/in*width+i%in/kernels.E4M3Columns])
		}
	}
	return values
}

// e4m3s are the numbers of all codes.
var e4m3s = func() (all [256]float64) {
	for code := range all {
		all[code] = e4m3(byte(code))
	}
	return all
}()

// e4m3 is the number of a float of eight bits: a sign, four bits of exponent, three of
// mantissa.
func e4m3(b byte) float64 {
	exponent, mantissa := int(b>>3&15), float64(b&7)/8
	v := math.Ldexp(mantissa, -6)
	if exponent > 0 {
		v = math.Ldexp(1+mantissa, exponent-7)
	}
	if b&0x80 != 0 {
		v = -v
	}
	return v
}
