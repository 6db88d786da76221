package kernels

// MaxRanks limits the ranks of [Queue.SumRanks].
const MaxRanks = 8

// SumRanks adds up what the ranks of a tensor-parallel group have computed.
type SumRanks struct {
	// Sums are bf16 arrays that get the same sums, each in the memory of a rank.
	Sums []uint64
	// Parts are float32 arrays of the ranks, at least two. They are added in this order,
	// whoever adds them.
	Parts []uint64
	// First and Count say which values of all arrays are summed; multiples of 8.
	First, Count int
}

const rankThreads = 256

// SumRanks adds up parts.
func (q *Queue) SumRanks(o SumRanks) error {
	s := shape{op: "sum of ranks"}
	s.require(len(o.Parts) >= 2 && len(o.Parts) <= MaxRanks, "%d ranks, kernels know 2 to %d", len(o.Parts), MaxRanks)
	s.require(len(o.Sums) >= 1 && len(o.Sums) <= MaxRanks, "sums go to %d places, kernels know 1 to %d", len(o.Sums), MaxRanks)
	s.require(o.First >= 0 && o.First%8 == 0 && o.Count >= 0 && o.Count%8 == 0, "values %d to %d are not groups of 8", o.First, o.First+o.Count)
	s.aligned(o.Sums...)
	s.aligned(o.Parts...)
	if s.err != nil || o.Count == 0 {
		return s.err
	}
	a := q.args()
	for _, addresses := range [2][]uint64{o.Sums, o.Parts} {
		for i := range MaxRanks {
			var p uint64
			if i < len(addresses) {
				p = addresses[i]
			}
			a.Pointer(p)
		}
	}
	a.Int64(int64(o.First / 8)).Int64(int64(o.Count / 8)).Int32(int32(len(o.Sums))).Int32(int32(len(o.Parts)))
	return q.run("sum_ranks", blocks(o.Count/8, rankThreads), 1, 1, rankThreads, 0)
}
