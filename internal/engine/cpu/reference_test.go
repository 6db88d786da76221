package cpu

import (
	"math"
	"testing"

	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// reference computes a model the plain way: float64, one matrix of keys for the
// whole prompt, no blocks, no tiles. It shares nothing with the package but the
// parsed configuration, and repeats the rope formulas from their description.
type reference struct {
	t *testing.T
	m *model.Model
	c model.Config
	// round, if there is one, is applied to what bf16 matrices are multiplied with.
	round func(float64) float64
	// int8 rounds what quantized matrices are multiplied with, as the package does.
	int8 bool
	// kept are matrices that were asked for; nil: they are read each time.
	kept map[matrixKey][][]float64
}

type matrixKey struct {
	role  model.Role
	layer int
}

// input is x as the matrix of a role takes it.
func (r reference) input(role model.Role, l int, x []float64) []float64 {
	t, _ := r.m.Weight(role, l)
	out := make([]float64, len(x))
	if r.round != nil && t.DType == safetensors.BF16 {
		for i, v := range x {
			out[i] = r.round(v)
		}
		return out
	}
	if !r.int8 || !t.DType.Quantized() {
		return x
	}
	for b := 0; b < len(x); b += 32 {
		most := 0.0
		for _, v := range x[b:][:32] {
			most = max(most, math.Abs(v))
		}
		for i, v := range x[b:][:32] {
			if most > 0 {
				out[b+i] = math.RoundToEven(v*127/most) * most / 127
			}
		}
	}
	return out
}

// logits returns the logits after each token of the prompt.
func (r reference) logits(prompt []uint32) [][]float64 {
	embed := r.matrix(model.RoleEmbed, 0)
	x := make([][]float64, len(prompt))
	for t, id := range prompt {
		x[t] = append([]float64(nil), embed[id]...)
	}
	for l := range r.c.Layers {
		r.attention(x, l)
		r.mlp(x, l)
	}
	head := r.matrix(model.RoleHead, 0)
	out := make([][]float64, len(x))
	for t := range x {
		out[t] = mul(head, nil, r.input(model.RoleHead, 0, r.norm(x[t], model.RoleFinalNorm, 0)))
	}
	return out
}

func (r reference) attention(x [][]float64, l int) {
	c := r.c
	q, k, v := make([][]float64, len(x)), make([][]float64, len(x)), make([][]float64, len(x))
	wq, wk, wv, wo := r.matrix(model.RoleQ, l), r.matrix(model.RoleK, l), r.matrix(model.RoleV, l), r.matrix(model.RoleO, l)
	for t := range x {
		n := r.norm(x[t], model.RoleAttnNorm, l)
		q[t] = mul(wq, r.vector(model.RoleQBias, l), r.input(model.RoleQ, l, n))
		k[t] = mul(wk, r.vector(model.RoleKBias, l), r.input(model.RoleK, l, n))
		v[t] = mul(wv, r.vector(model.RoleVBias, l), r.input(model.RoleV, l, n))
		for h := range c.Heads {
			r.rotate(q[t][h*c.HeadDim:(h+1)*c.HeadDim], t, model.RoleQNorm, l)
		}
		for h := range c.KVHeads {
			r.rotate(k[t][h*c.HeadDim:(h+1)*c.HeadDim], t, model.RoleKNorm, l)
		}
	}
	for t := range x {
		joined := make([]float64, c.Heads*c.HeadDim)
		for h := range c.Heads {
			kv := h / (c.Heads / c.KVHeads) * c.HeadDim
			query := q[t][h*c.HeadDim:][:c.HeadDim]
			weights := make([]float64, t+1)
			top, sum := math.Inf(-1), 0.0
			for p := range weights {
				for d, v := range query {
					weights[p] += v * k[p][kv+d]
				}
				weights[p] /= math.Sqrt(float64(c.HeadDim))
				top = max(top, weights[p])
			}
			for p := range weights {
				weights[p] = math.Exp(weights[p] - top)
				sum += weights[p]
			}
			for p, w := range weights {
				for d := range c.HeadDim {
					joined[h*c.HeadDim+d] += w / sum * v[p][kv+d]
				}
			}
		}
		for i, add := range mul(wo, r.vector(model.RoleOBias, l), r.input(model.RoleO, l, joined)) {
			x[t][i] += add
		}
	}
}

func (r reference) mlp(x [][]float64, l int) {
	gate, up, down := r.matrix(model.RoleGate, l), r.matrix(model.RoleUp, l), r.matrix(model.RoleDown, l)
	for t := range x {
		n := r.norm(x[t], model.RoleMLPNorm, l)
		a := mul(gate, r.vector(model.RoleGateBias, l), r.input(model.RoleGate, l, n))
		b := mul(up, r.vector(model.RoleUpBias, l), r.input(model.RoleUp, l, n))
		for i := range a {
			a[i] = a[i] / (1 + math.Exp(-a[i])) * b[i]
		}
		for i, add := range mul(down, r.vector(model.RoleDownBias, l), r.input(model.RoleDown, l, a)) {
			x[t][i] += add
		}
	}
}

func (r reference) norm(x []float64, role model.Role, l int) []float64 {
	return r.normWith(x, r.vector(role, l))
}

func (r reference) normWith(x, weight []float64) []float64 {
	var sum float64
	for _, v := range x {
		sum += v * v
	}
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = v / math.Sqrt(sum/float64(len(x))+r.c.NormEps) * weight[i]
	}
	return out
}

// rotate applies the norm of one head, if the model has one, and its rotation.
func (r reference) rotate(x []float64, position int, norm model.Role, l int) {
	if weight := r.vector(norm, l); weight != nil {
		copy(x, r.normWith(x, weight))
	}
	half := len(x) / 2
	factor := 1.0
	if p := r.c.RoPE; p.Type == "yarn" {
		factor = 0.1*math.Log(p.Factor) + 1
	}
	for i := range half {
		angle := float64(position) * r.frequency(i)
		c, s := math.Cos(angle)*factor, math.Sin(angle)*factor
		a, b := x[i], x[half+i]
		x[i], x[half+i] = a*c-b*s, b*c+a*s
	}
}

func (r reference) frequency(i int) float64 {
	p, d := r.c.RoPE, float64(r.c.HeadDim)
	f := math.Pow(p.Theta, -2*float64(i)/d)
	original := float64(p.OriginalContext)
	switch p.Type {
	case "linear":
		return f / p.Factor
	case "llama3":
		w := 2 * math.Pi / f
		if w < original/p.HighFreqFactor {
			return f
		}
		if w > original/p.LowFreqFactor {
			return f / p.Factor
		}
		s := (original/w - p.LowFreqFactor) / (p.HighFreqFactor - p.LowFreqFactor)
		return f * ((1-s)/p.Factor + s)
	case "yarn":
		dim := func(n float64) float64 { return d * math.Log(original/(2*math.Pi*n)) / (2 * math.Log(p.Theta)) }
		low, high := math.Max(math.Floor(dim(32)), 0), math.Min(math.Ceil(dim(1)), d-1)
		ramp := math.Min(math.Max((float64(i)-low)/(high-low), 0), 1)
		return f/p.Factor*ramp + f*(1-ramp)
	}
	return f
}

// mul is the product of a matrix and a vector plus a bias.
func mul(m [][]float64, bias, x []float64) []float64 {
	out := make([]float64, len(m))
	for i, row := range m {
		for k, w := range row {
			out[i] += w * x[k]
		}
		if bias != nil {
			out[i] += bias[i]
		}
	}
	return out
}

func (r reference) matrix(role model.Role, l int) [][]float64 {
	if m, ok := r.kept[matrixKey{role, l}]; ok {
		return m
	}
	flat := r.vector(role, l)
	t, _ := r.m.Weight(role, l)
	out := make([][]float64, t.Shape[0])
	for i := range out {
		out[i] = flat[i*t.Shape[1] : (i+1)*t.Shape[1]]
	}
	if r.kept != nil {
		r.kept[matrixKey{role, l}] = out
	}
	return out
}

func (r reference) vector(role model.Role, l int) []float64 {
	t, ok := r.m.Weight(role, l)
	if !ok {
		return nil
	}
	if t.DType.Quantized() {
		var out []float64
		for _, v := range modeltest.Floats(r.t, t) {
			out = append(out, float64(v))
		}
		return out
	}
	size := int(t.DType.Bits() / 8)
	out := make([]float64, len(t.Data)/size)
	for i := range out {
		b := t.Data[i*size:]
		switch t.DType {
		case safetensors.F32:
			out[i] = float64(math.Float32frombits(uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24))
		case safetensors.BF16:
			out[i] = float64(math.Float32frombits(uint32(b[0])<<16 | uint32(b[1])<<24))
		case safetensors.F16:
			out[i] = halfValue(uint16(b[0]) | uint16(b[1])<<8)
		default:
			r.t.Fatalf("tensor %s has type %s", t.Name, t.DType)
		}
	}
	return out
}

// halfValue is the value of an IEEE half precision number by its definition.
func halfValue(h uint16) float64 {
	sign, exp, frac := 1.0, int(h>>10&31), float64(h&1023)
	if h>>15 == 1 {
		sign = -1
	}
	switch exp {
	case 0:
		return sign * math.Ldexp(frac, -24)
	case 31:
		if frac == 0 {
			return sign * math.Inf(1)
		}
		return math.NaN()
	}
	return sign * math.Ldexp(1+frac/1024, exp-15)
}
