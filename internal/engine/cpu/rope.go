package cpu

import "github.com/dynctl/dynctl/internal/model"

// rope is a rotation of heads. A model has one, and may have a second one for the layers
// with a window.
type rope struct {
	invFreq []float32 // angle per position of each pair; nil if no layer uses it
	factor  float64   // of cosines and sines
	// sections are the numbers of pairs that turn by each of a token's three positions; zero
	// if all turn by one.
	sections [3]int
}

const (
	globalRope = iota
	localRope
	numRopes
)

func newRope(r model.RoPE, dim, maxContext int) rope {
	return rope{r.InvFreq(dim, maxContext), r.Attention, r.Sections}
}

// angles fills in the cosines and sines of a token.
func (r *rope) angles(cos, sin []float32, at [3]int) {
	freqs := r.invFreq
	if r.sections == [3]int{} {
		angles(cos, sin, freqs, at[0], r.factor)
		return
	}
	for i, n := range r.sections {
		angles(cos, sin, freqs[:n], at[i], r.factor)
		cos, sin, freqs = cos[n:], sin[n:], freqs[n:]
	}
}
