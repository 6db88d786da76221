package kernel

import "unsafe"

// KVType is a type of keys and values.
type KVType uint8

// Types of keys and values. I8 are int8 with one float32 scale for each token and
// head.
const (
	KVF32 KVType = iota
	KVBF16
	KVI8
)

// Size of one value in bytes.
func (t KVType) Size() int { return [...]int{4, 2, 1}[t] }

// KVGroup is the number of tokens whose keys lie side by side:
// [dim][token], for bf16 [dim / 2][token][dim % 2].
const KVGroup = 16

const (
	scoreQueries   = 12 // the largest number of queries in one Score
	maxScoreGroups = 4
)

// Score is the products of some queries with groups of keys. Every score runs over
// the dimensions from first to last in fused multiply-adds and starts at zero,
// whatever the number of queries; those of int8 are multiplied by the scale of
// their token in the end.
type Score struct {
	// Queries lie side by side: [dim][query] of float32 or, for [Level.ScorePairs],
	// [dim / 2][query][dim % 2] of bf16.
	Queries unsafe.Pointer
	Dims    int
	Keys    [maxScoreGroups]unsafe.Pointer // sixteen tokens each
	Scales  [maxScoreGroups]*float32       // of the tokens, for int8 only
	// Next is prefetched: the keys read next, as many bytes as a group has. An address
	// without memory behind it does no harm.
	Next   [maxScoreGroups]unsafe.Pointer
	Scores [maxScoreGroups]*float32 // results of the first query, sixteen each
	Stride int                      // bytes to those of the next query
}

// ScoreShape returns how many of so many queries the next Score should take, and
// how many groups it takes then: always that many, which may be the same.
func (l Level) ScoreShape(queries int) (m, groups int) {
	most, narrow := scoreQueries, l == AVX2 || l == NEON
	if narrow {
		most = 6
	}
	calls := (queries + most - 1) / most
	m = (queries + calls - 1) / calls
	switch {
	case narrow && m > 3:
		return m, 1
	case narrow || m > 5:
		return m, 2
	}
	return m, 4
}

// Score computes the products of m queries, as ScoreShape says.
func (l Level) Score(t KVType, m int, c *Score) { l.score(t, m, c) }

// Softmax turns the scores of one query into weights, exp(score - largest score),
// and zero for positions outside of [first, to), which must not be empty. It returns the largest
// score and the sum of all weights: in sixteen sums, that of position i in sum
// i % 16, which are added in halves (i and i+8, then i+4, i+2, i+1). The number of
// scores is a multiple of sixteen.
func (l Level) Softmax(scores []float32, first, to int) (top, norm float32) {
	return l.softmax(&scores[0], len(scores)/KVGroup, float32(first), float32(to))
}

// mixRows is the largest number of sums in one Mix.
const mixRows = 6

// Mix adds weighted rows of values to sums: for each row of sums, over positions
// from first to last, in fused multiply-adds.
type Mix struct {
	Weights      unsafe.Pointer // [row][position] of float32 or, for [Level.MixPairs], of bf16
	WeightStride int            // bytes from one row to the next
	Values       unsafe.Pointer // [position][dim]
	ValueStride  int            // bytes
	Next         unsafe.Pointer // what will be read next, see Score
	Sums         *float32       // [row][dim]
	SumStride    int            // bytes
	Count        int            // positions, at least 1
}

// MixShare returns the number of rows, of so many, that the next Mix should take.
func (l Level) MixShare(rows int) int {
	calls := (rows + mixRows - 1) / mixRows
	return (rows + calls - 1) / calls
}

// MixWidth returns the number of dimensions, of n, a multiple of 16, that the next Mix of so
// many rows should take.
func (l Level) MixWidth(rows, n int) int {
	most, narrow := 128, l == AVX2 || l == NEON
	switch {
	case narrow && rows > 3:
		most = 16
	case narrow:
		most = 32
	case rows > 3:
		most = 64
	}
	for most > n {
		most /= 2
	}
	return most
}

// Mix computes sums of so many rows and dimensions, as MixShare and MixWidth say.
func (l Level) Mix(t KVType, rows, width int, c *Mix) { l.mix(t, rows, width, c) }
