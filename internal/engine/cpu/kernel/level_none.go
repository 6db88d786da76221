//go:build !amd64 && !arm64

package kernel

// Without kernels of its own a machine has the portable level only, at which nobody
// calls these. What amd64 alone has kernels for is in Go for all others, arm64 among
// them: such a method belongs to a file for !amd64.

// lowest is above best: no level has kernels.
const lowest = AVX2

func best() Level { return Portable }

func (l Level) product(t Type, width, m int, c *Call) { productGo(t, width, m, c) }

func (l Level) sumSquares(x []float32) float32 { return sumSquaresGo(x) }

func (l Level) scaleBy(dst, x, weight []float32, scale float32) { scaleByGo(dst, x, weight, scale) }

func (l Level) swiglu(gate, up []float32) { swigluGo(gate, up) }

func (l Level) gelu(x []float32, linear, cubic float32) { geluGo(x, linear, cubic) }

func (l Level) rotate(lo, hi, cos, sin []float32, scale float32) { rotateGo(lo, hi, cos, sin, scale) }

func (l Level) blend(sum, part []float32, keep, take float32) { blendGo(sum, part, keep, take) }

func (l Level) scale(dst, x []float32, factor float32) { scaleGo(dst, x, factor) }

func (l Level) widenBF16(dst []float32, src []uint16) { widenBF16Go(dst, src) }

func (l Level) quantize(dst []Block, x []float32) { quantizeGo(dst, x) }

func (l Level) productBlocks(Type, int, *BlockCall) {
	panic("kernel: products of blocks at the portable level")
}
