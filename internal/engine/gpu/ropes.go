package gpu

import (
	"math"

	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/model"
)

// ropeTable holds the cosines and sines of all positions, float32 [position][rotary / 2].
type ropeTable struct{ cos, sin uint64 }

const (
	globalRope = iota
	localRope
	numRopes
)

// rope returns the rotation of layers of a kind, or nil if no layer has it.
func (b *Backend) rope(kind int) *model.RoPE {
	if kind == localRope {
		return b.weights.config.LocalRoPE
	}
	return &b.weights.config.RoPE
}

func (r *rank) ropeBytes() (n int64) {
	for kind := range numRopes {
		if r.rope(kind) != nil {
			n += 2 * device.Aligned(int64(r.options.MaxContext)*int64(r.weights.config.Rotary()/2)*4)
		}
	}
	return n
}

// allocateRopes computes the tables. Angles are those of the CPU engine.
func (r *rank) allocateRopes(io *device.Arena) error {
	half := r.weights.config.Rotary() / 2
	if half == 0 {
		return nil
	}
	size := int64(r.options.MaxContext) * int64(half) * 4
	for kind := range numRopes {
		rope := r.rope(kind)
		if rope == nil {
			continue
		}
		cos, err := io.Take(size)
		if err != nil {
			return err
		}
		sin, err := io.Take(size)
		if err != nil {
			return err
		}
		r.ropes[kind] = ropeTable{cos.Address, sin.Address}
		freq := rope.InvFreq(r.weights.config.Rotary(), r.options.MaxContext)
		if err := r.uploadRopes(cos, sin, freq, rope.Attention); err != nil {
			return err
		}
	}
	return nil
}

// uploadRopes fills both tables. It uses the host's logits buffer as staging memory.
func (r *rank) uploadRopes(cos, sin device.Region, freq []float32, factor float64) error {
	const row = 4
	stage := &r.ranks[0].out
	chunk := len(stage.host) / 2 / len(freq) // positions
	for from := 0; from < r.options.MaxContext; from += chunk {
		n := min(chunk, r.options.MaxContext-from)
		c, s := stage.host[:n*len(freq)], stage.host[n*len(freq):][:n*len(freq)]
		for p := range n {
			for i, f := range freq {
				sine, cosine := math.Sincos(float64(float32(from+p) * f))
				c[p*len(freq)+i], s[p*len(freq)+i] = float32(cosine*factor), float32(sine*factor)
			}
		}
		at, bytes := int64(from*len(freq)*row), int64(n*len(freq)*row)
		if err := r.put(cos.Slice(at, bytes), stage.mem[:bytes]); err != nil {
			return err
		}
		if err := r.put(sin.Slice(at, bytes), stage.mem[bytes:2*bytes]); err != nil {
			return err
		}
	}
	return nil
}
