package kernel

import "unsafe"

// maxRows is the largest number of rows of activations in one product.
const maxRows = 12

// Type is a type of weights.
type Type uint8

// Types of weights.
const (
	F32 Type = iota
	BF16
	F16
	Q8_0
	Q4_0
	Q4K
	Q5K
	Q6K
)

// RowBytes is the size of so many weights as a file has them. Quantized weights are
// whole blocks, see [Type.BlockWeights].
func (t Type) RowBytes(cols int) int {
	switch {
	case t.Quantized():
		l := layouts[t]
		return cols / l.weights * l.bytes
	case t == F32:
		return 4 * cols
	}
	return 2 * cols
}

// Call is one product: for each of some rows of activations, the sums with all
// outputs of a panel.
//
// Every sum runs over k from first to last in fused multiply-adds and starts at
// zero, whatever the number of rows.
type Call struct {
	Src   [maxRows]*float32 // Cols values each
	Dst   [maxRows]*float32 // room for all outputs of the panel, padding included
	Panel unsafe.Pointer    // see [Pack]
	Cols  int
}

// Rows returns the most rows in a product with a panel of width outputs.
func (l Level) Rows(width int) int {
	switch l {
	case AVX2:
		return 3 * 32 / width
	case NEON:
		return 6
	}
	return maxRows
}

// Share returns the number of rows, of n, that the next product should take: all products of n
// rows get about the same.
func (l Level) Share(n, width int) int {
	most := l.Rows(width)
	calls := (n + most - 1) / most
	return (n + calls - 1) / calls
}

// Product computes a call for m rows, at most [Level.Rows], with a panel of width
// outputs, 16 or 32.
func (l Level) Product(t Type, width, m int, c *Call) {
	l.product(t, width, m, c)
}
