package kv

import "fmt"

// headSlice is a run of KV heads that one rank here and one rank there both have.
type headSlice struct {
	here, there         int // ranks
	fromHere, fromThere int // first head of the run, counted within the rank
	heads               int
}

// sliceHeads cuts heads into runs that lie within one rank on either side, of workers
// with so many ranks: all heads, in their order. Neither number of ranks needs to be a
// multiple of the other one; both divide heads.
func sliceHeads(heads, here, there int) ([]headSlice, error) {
	for _, n := range []int{here, there} {
		if n < 1 || heads < 1 || heads%n != 0 {
			return nil, fmt.Errorf("%w: %d ranks do not share %d KV heads evenly", ErrMismatch, n, heads)
		}
	}
	var out []headSlice
	perHere, perThere := heads/here, heads/there
	for head := 0; head < heads; {
		s := headSlice{here: head / perHere, there: head / perThere, fromHere: head % perHere, fromThere: head % perThere}
		s.heads = min(perHere-s.fromHere, perThere-s.fromThere)
		out = append(out, s)
		head += s.heads
	}
	return out, nil
}
