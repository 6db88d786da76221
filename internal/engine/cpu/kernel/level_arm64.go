package kernel

import "golang.org/x/sys/cpu"

// lowest is the first level with kernels.
const lowest = NEON

func best() Level { return NEON }

func (l Level) product(t Type, width, m int, c *Call) {
	for _, part := range productsNEON[t][width/16][m] {
		if part != nil {
			part(c)
		}
	}
}

func (l Level) sumSquares(x []float32) float32 { return sumSquaresNEON(&x[0], len(x)) }

func (l Level) scaleBy(dst, x, weight []float32, scale float32) {
	scaleByNEON(&dst[0], &x[0], &weight[0], scale, len(dst))
}

func (l Level) swiglu(gate, up []float32) { swigluNEON(&gate[0], &up[0], len(gate)) }

func (l Level) gelu(x []float32, linear, cubic float32) { geluNEON(&x[0], linear, cubic, len(x)) }

func (l Level) rotate(lo, hi, cos, sin []float32, scale float32) {
	rotateNEON(&lo[0], &hi[0], &cos[0], &sin[0], scale, len(lo))
}

func (l Level) blend(sum, part []float32, keep, take float32) {
	blendNEON(&sum[0], &part[0], keep, take, len(sum))
}

func (l Level) scale(dst, x []float32, factor float32) {
	scaleNEON(&dst[0], &x[0], factor, len(dst))
}

func (l Level) widenBF16(dst []float32, src []uint16) { widenBF16NEON(&dst[0], &src[0], len(dst)) }

func (l Level) quantize(dst []Block, x []float32) { quantizeNEON(&dst[0], &x[0], len(dst)) }

// hasI8MM is whether matrices of bytes are multiplied in one instruction, and the few
// rows for which that is no gain, too.
var hasI8MM = cpu.ARM64.HasI8MM && cpu.ARM64.HasASIMDDP

// matrixRows is from how many rows on a product of matrices takes fewer instructions.
const matrixRows = 5

// productBlocks takes the kernels that the machine has. All kinds give the same bits,
// so that is its own business.
func (l Level) productBlocks(t Type, m int, c *BlockCall) {
	switch {
	case hasI8MM && m >= matrixRows:
		productMatrix(blocksI8MM[t], m, c)
	case cpu.ARM64.HasASIMDDP:
		productBlocks(&blocksSDOT[t], m, c)
	default:
		productBlocks(&blocksNEON[t], m, c)
	}
}

// productMatrix is a product in parts of eight outputs. The kernel takes six rows: the
// last one counts for those that are missing, too.
func productMatrix(part func(c *BlockCall, from int), m int, c *BlockCall) {
	for i := m; i < blockRows; i++ {
		c.Src[i], c.Dst[i] = c.Src[m-1], c.Dst[m-1]
	}
	for from := 0; from < Width; from += 8 {
		part(c, from)
	}
}

// productBlocks is a product in parts: one row takes all outputs of the panel, several
// rows, by three or two, take one half and then the other.
func productBlocks(parts *[4]func(c *BlockCall, row, from int), m int, c *BlockCall) {
	if m == 1 {
		parts[1](c, 0, 0)
		return
	}
	for from := 0; from < Width; from += Width / 2 {
		for row := 0; row < m; {
			n := 3
			if rest := m - row; rest == 2 || rest == 4 {
				n = 2
			}
			parts[n](c, row, from)
			row += n
		}
	}
}
