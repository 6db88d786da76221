package kernel

// ColumnLanes is the number of queries whose softmax is computed together.
const ColumnLanes = 16

// Column turns the scores of sixteen queries over a run of positions into weights:
// exp(score - largest score), and zero where a query does not see the position. The
// norm is the sum of the weights from the first position to the last.
type Column struct {
	Scores *float32 // [position][query], with other queries beside
	Stride int      // bytes from one position to the next
	Count  int      // positions, at least 1
	First  *float32 // of each query: the first position that it sees
	To     *float32 // of each query: the first that it no longer sees
	Top    *float32 // result: largest score of each query, -Inf where it sees none
	Norm   *float32 // result: sum of weights
}

// Softmax computes a column.
func (l Level) Softmax(c *Column) { l.softmax(c) }

// mixRows is the largest number of sums in one Mix.
const mixRows = 6

// Mix adds weighted rows of values to sums: for each row of sums, over positions
// from first to last, in fused multiply-adds.
type Mix struct {
	Weights      *float32 // [position][row], rows side by side
	WeightStride int      // bytes from one position to the next
	Values       *float32 // [position][dim]
	ValueStride  int      // bytes
	Sums         *float32 // [row][dim]
	SumStride    int      // bytes
	Count        int      // positions, at least 1
}

// MixRows is how many rows a Mix takes at most.
func (l Level) MixRows() int { return mixRows }

// MixWidth is how many of n dimensions, a multiple of 16, the next Mix should take.
func (l Level) MixWidth(n int) int {
	switch {
	case l == AVX2 || l == NEON || n < 32:
		return 16
	case n < 64:
		return 32
	}
	return 64
}

// Mix computes sums of so many rows and dimensions, as MixRows and MixWidth allow.
func (l Level) Mix(rows, width int, c *Mix) { l.mix(rows, width, c) }
