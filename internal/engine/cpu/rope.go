package cpu

import "github.com/dynctl/dynctl/internal/model"

// rope is a rotation of heads. A model has one, and may have a second one for the layers
// with a window.
type rope struct {
	invFreq []float32 // angle per position of each pair; nil if no layer uses it
	factor  float64   // of cosines and sines
}

const (
	globalRope = iota
	localRope
	numRopes
)

func newRope(r model.RoPE, dim, maxContext int) rope {
	return rope{r.InvFreq(dim, maxContext), r.Attention}
}
