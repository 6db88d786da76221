package model

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"math/rand/v2"

	"github.com/dynctl/dynctl/internal/model/minitok"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// fill makes the elements of a tensor from index first on. It uses only operations with
// one correct result, so all machines give the same bits.
func (w weightWriter) fill(t TensorSpec, first int, values []float32) {
	name := fnv.New64a()
	name.Write([]byte(t.Name)) // a hash never fails
	rng := rand.NewPCG(w.spec.Seed, name.Sum64()^uint64(first/fillElems)<<40)
	for i := 0; i < len(values); i += 4 {
		bits := rng.Uint64()
		for j := i; j < min(i+4, len(values)); j++ {
			values[j] = float32(int16(bits))
			bits >>= 16
		}
	}
	parts := t.Parts
	if parts == nil {
		parts = []Part{{Role: t.Role, Shape: t.Shape}}
	}
	start := 0
	for _, p := range parts {
		end := start + elems(p.Shape)
		if from, to := max(start-first, 0), min(end-first, len(values)); from < to {
			w.spread(p.Role, values[from:to])
		}
		start = end
	}
	if t.Role == RoleHead || t.Role == RoleEmbed && w.config.TiedHead {
		w.quietSpecials(t, first, values)
	}
}

// spread moves whole numbers of 16 bits into the range of a role.
func (w weightWriter) spread(r Role, values []float32) {
	mean, width := distribution(r, w.config)
	if w.config.NormPlusOne && r.Norm() {
		mean--
	}
	step := float32(width / 32768)
	for i, v := range values {
		// The conversion of the product keeps it from being fused with the sum.
		values[i] = float32(mean) + float32(v*step)
	}
}

// distribution returns the mean and half the width of the uniform distribution of a
// role's elements; see [Synthetic] for its goals.
func distribution(r Role, config Config) (mean, width float64) {
	const (
		logits = 4.0 // standard deviation
		scores = 2.0 // of each component of queries and keys
		attn   = 2.0 // of attention's part in the residual; averaging shrinks it
		mlp    = 3.0
	)
	deviation := func(d float64, fanIn int) (float64, float64) {
		return 0, d * math.Sqrt(3/float64(fanIn))
	}
	switch r {
	case RoleVisionPreNorm, RoleVisionPostNorm, RoleVisionNorm, RoleVisionMLPNorm, RoleProjectNorm:
		return 1, 0.2
	case RoleClass, RoleNewline:
		return 0, 1
	case RolePatch:
		return deviation(1, config.Vision.PatchValues())
	case RoleVisionQ, RoleVisionK:
		return deviation(scores, config.Vision.Hidden)
	case RoleVisionO:
		return deviation(attn, config.Vision.Hidden)
	case RoleVisionV, RoleVisionUp, RoleVisionGate:
		return deviation(1, config.Vision.Hidden)
	case RoleVisionDown:
		return deviation(mlp, config.Vision.FFN)
	case RoleProjectIn:
		return deviation(1, config.Vision.Hidden*config.Vision.Projector.Factor*config.Vision.Projector.Factor)
	case RoleProjectOut:
		return deviation(1, config.Vision.shape(RoleProjectOut, config.Hidden)[1])
	case RoleFinalNorm:
		return logits, 0.1 * logits
	case RoleAttnNorm, RoleMLPNorm, RolePostAttnNorm, RolePostMLPNorm:
		return 1, 0.2
	case RoleQNorm, RoleKNorm:
		return scores, 0.2
	case RoleEmbed, RoleHead:
		return deviation(1, config.Hidden)
	case RoleQ, RoleK:
		return deviation(scores, config.Hidden)
	case RoleO:
		return deviation(attn, config.Heads*config.HeadDim)
	case RoleDown:
		return deviation(mlp, config.FFN)
	case RoleExpertDown:
		return deviation(mlp, config.MoE.FFN)
	case RoleV, RoleGate, RoleUp, RoleRouter, RoleExpertGate, RoleExpertUp:
		return deviation(1, config.Hidden)
	}
	return 0, 0.2 // biases
}

// quietSpecials makes the rows of the special tokens, the tokenizer's last, so small that
// they never have the largest logit.
func (w weightWriter) quietSpecials(t TensorSpec, first int, values []float32) {
	width := t.Shape[1]
	from, to := (w.known-minitok.Specials)*width, w.known*width
	for i := max(from, first); i < min(to, first+len(values)); i++ {
		values[i-first] *= 0.125
	}
}

// weightType returns the type of all tensors. The field is checked where config.json is
// written.
func (s Synthetic) weightType() safetensors.DType {
	switch s.DType {
	case "bf16":
		return safetensors.BF16
	case "f16":
		return safetensors.F16
	}
	return safetensors.F32
}

// appendElems stores values in the type of a tensor.
func appendElems(out []byte, values []float32, dtype safetensors.DType) []byte {
	switch dtype {
	case safetensors.BF16:
		for _, v := range values {
			out = binary.LittleEndian.AppendUint16(out, safetensors.ToBF16(v))
		}
	case safetensors.F16:
		for _, v := range values {
			out = binary.LittleEndian.AppendUint16(out, f16(v))
		}
	default:
		for _, v := range values {
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
		}
	}
	return out
}

// f16 rounds to nearest even; values too large for the type become infinite.
func f16(v float32) uint16 {
	sign := uint16(math.Float32bits(v) >> 16 & 0x8000)
	abs := math.Abs(float64(v))
	switch {
	case abs >= 65520:
		return sign | 0x7C00
	case abs < 0x1p-14: // subnormal: a multiple of 2^-24
		return sign | uint16(math.RoundToEven(abs*0x1p24))
	}
	frac, exp := math.Frexp(abs) // frac in [0.5, 1)
	// The implicit bit adds one to the exponent, and so may rounding up.
	return sign | (uint16(exp+13)<<10 + uint16(math.RoundToEven(frac*2048)))
}
