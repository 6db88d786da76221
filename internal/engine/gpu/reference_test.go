package gpu_test

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// reference computes a model the plain way: float64, one matrix of keys for the whole
// text, no blocks and no batches, rounded to bf16 where the backend rounds. It shares
// nothing with the package but the parsed configuration.
type reference struct {
	t *testing.T
	m *model.Model
	c model.Config
	// exact leaves matrices as they are: those of a quantized model, widened.
	exact bool
	// int8 keeps keys and values as 127ths of the largest of a head.
	int8 bool
}

// kept rounds the keys or values of a token as the block pool does.
func (r reference) kept(x []float64) []float64 {
	if !r.int8 {
		return bf16(x)
	}
	for h := 0; h < len(x); h += r.c.HeadDim {
		head := x[h:][:r.c.HeadDim]
		var top float64
		for _, v := range head {
			top = max(top, math.Abs(v))
		}
		for i, v := range head {
			head[i] = math.RoundToEven(v/top*127) * top / 127
		}
	}
	return x
}

// noBias is the role of no tensor.
const noBias = model.Role(-1)

// bf16 rounds values.
func bf16(v []float64) []float64 {
	for i, x := range v {
		v[i] = float64(safetensors.FromBF16(safetensors.ToBF16(float32(x))))
	}
	return v
}

// weight is a tensor as bf16, nil where the model has none.
func (r reference) weight(role model.Role, layer int) []float64 { return r.expert(role, layer, 0) }

func (r reference) expert(role model.Role, layer, expert int) []float64 {
	w, ok := r.m.Expert(role, layer, expert)
	if !ok {
		return nil
	}
	floats := modeltest.Floats(r.t, w)
	out := make([]float64, len(floats))
	for i, v := range floats {
		out[i] = float64(v)
	}
	if r.exact && len(w.Shape) > 1 {
		return out
	}
	return bf16(out)
}

// product multiplies a row with a matrix, and adds the bias if there is one.
func (r reference) product(x []float64, weight, bias model.Role, layer int) []float64 {
	out := rows(x, r.weight(weight, layer))
	if b := r.weight(bias, layer); b != nil {
		for n := range out {
			out[n] += b[n]
		}
	}
	return out
}

// rows multiplies a row with those of a matrix.
func rows(x, w []float64) []float64 {
	out := make([]float64, len(w)/len(x))
	for n := range out {
		for i, v := range x {
			out[n] += v * w[n*len(x)+i]
		}
	}
	return out
}

// norm is the RMS norm of a row, not rounded.
func (r reference) norm(x []float64, role model.Role, layer int) []float64 {
	w := r.weight(role, layer)
	if w == nil {
		return append([]float64(nil), x...)
	}
	var squares float64
	for _, v := range x {
		squares += v * v
	}
	scale := 1 / math.Sqrt(squares/float64(len(x))+r.c.NormEps)
	out := make([]float64, len(x))
	for i, v := range x {
		if out[i] = v * scale * w[i]; r.c.NormPlusOne {
			out[i] = v * scale * (w[i] + 1)
		}
	}
	return out
}

func (r reference) rotate(x []float64, position, layer int, longest int) {
	rope := r.c.RoPE
	if r.c.LocalRoPE != nil && r.c.WindowOf(layer) > 0 {
		rope = *r.c.LocalRoPE
	}
	half := r.c.Rotary() / 2
	for i, f := range rope.InvFreq(r.c.Rotary(), longest) {
		sin, cos := math.Sincos(float64(float32(position) * f))
		s, c := float64(float32(sin*rope.Attention)), float64(float32(cos*rope.Attention))
		x[i], x[i+half] = x[i]*c-x[i+half]*s, x[i+half]*c+x[i]*s
	}
}

func bend(x, limit float64) float64 {
	if limit == 0 {
		return x
	}
	return limit * math.Tanh(x/limit)
}

// logits returns the logits after each token of a text.
func (r reference) logits(tokens []uint32) [][]float64 {
	c := r.c
	embed := r.weight(model.RoleEmbed, 0)
	var sums [][]float64
	for _, id := range tokens {
		row := append([]float64(nil), embed[int(id)*c.Hidden:][:c.Hidden]...)
		if c.ScaleEmbed {
			scale := bf16([]float64{math.Sqrt(float64(c.Hidden))})[0]
			for i := range row {
				row[i] *= scale
			}
		}
		sums = append(sums, bf16(row))
	}
	for layer := range c.Layers {
		r.layer(sums, layer)
	}
	head := model.RoleHead
	if c.TiedHead {
		head = model.RoleEmbed
	}
	out := make([][]float64, len(tokens))
	for t, sum := range sums {
		out[t] = r.product(bf16(r.norm(sum, model.RoleFinalNorm, 0)), head, noBias, 0)
		for i, v := range out[t] {
			out[t][i] = bend(v, c.LogitCap)
		}
	}
	return out
}

// layer computes one layer on the residual of all tokens.
func (r reference) layer(sums [][]float64, layer int) {
	c := r.c
	dim := c.HeadDim
	var q, k, v [][]float64 // [token][head × dim]
	heads := func(x []float64, role model.Role, position int) []float64 {
		for h := 0; h < len(x); h += dim {
			head := r.norm(x[h:h+dim], role, layer)
			r.rotate(head, position, layer, c.MaxContext)
			copy(x[h:], head)
		}
		return x
	}
	for t, sum := range sums {
		x := bf16(r.norm(sum, model.RoleAttnNorm, layer))
		q = append(q, bf16(heads(bf16(r.product(x, model.RoleQ, model.RoleQBias, layer)), model.RoleQNorm, t)))
		k = append(k, r.kept(heads(bf16(r.product(x, model.RoleK, model.RoleKBias, layer)), model.RoleKNorm, t)))
		v = append(v, r.kept(bf16(r.product(x, model.RoleV, model.RoleVBias, layer))))
	}
	for t := range sums {
		attended := make([]float64, c.Heads*dim)
		for h := range c.Heads {
			r.attend(attended[h*dim:][:dim], q[t][h*dim:][:dim], k, v, t, h/(c.Heads/c.KVHeads), layer)
		}
		x := bf16(r.product(bf16(attended), model.RoleO, model.RoleOBias, layer))
		r.join(sums[t], x, model.RolePostAttnNorm, layer)
		x = bf16(r.norm(sums[t], model.RoleMLPNorm, layer))
		r.join(sums[t], r.mlp(x, layer), model.RolePostMLPNorm, layer)
	}
}

// mlp computes the MLP of a layer, or its experts.
func (r reference) mlp(x []float64, layer int) []float64 {
	if !r.c.Sparse(layer) {
		inner := r.gated(bf16(r.product(x, model.RoleGate, model.RoleGateBias, layer)), bf16(r.product(x, model.RoleUp, model.RoleUpBias, layer)))
		return bf16(r.product(inner, model.RoleDown, model.RoleDownBias, layer))
	}
	scores := rows(x, bf16(r.weight(model.RoleRouter, layer)))
	order := make([]int, len(scores))
	var all, some float64
	for e, s := range scores {
		order[e] = e
		all += math.Exp(s)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	order = order[:r.c.MoE.Active]
	for _, e := range order {
		some += math.Exp(scores[e]) / all
	}
	if !r.c.MoE.Normalize {
		some = 1
	}
	out := make([]float64, len(x))
	for _, e := range order {
		inner := r.gated(bf16(rows(x, r.expert(model.RoleExpertGate, layer, e))), bf16(rows(x, r.expert(model.RoleExpertUp, layer, e))))
		for i, v := range bf16(rows(inner, r.expert(model.RoleExpertDown, layer, e))) {
			out[i] += math.Exp(scores[e]) / all / some * v
		}
	}
	return bf16(out)
}

// gated joins gate and up.
func (r reference) gated(gate, up []float64) []float64 {
	for i, g := range gate {
		if r.c.Act == model.GELUTanh {
			gate[i] = 0.5 * g * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(g+0.044715*g*g*g))) * up[i]
		} else {
			gate[i] = g / (1 + math.Exp(-g)) * up[i]
		}
	}
	return bf16(gate)
}

// join adds x to the residual.
func (r reference) join(sum, x []float64, norm model.Role, layer int) {
	if r.c.PostNorms {
		x = bf16(r.norm(x, norm, layer))
	}
	for i, v := range x {
		sum[i] += v
	}
	bf16(sum)
}

// attend computes one head of token t.
func (r reference) attend(out, q []float64, k, v [][]float64, t, head, layer int) {
	from, dim := 0, len(q)
	if w := r.c.WindowOf(layer); w > 0 {
		from = max(0, t-w+1)
	}
	weights, top, norm := make([]float64, t+1), math.Inf(-1), 0.0
	for i := from; i <= t; i++ {
		for d, x := range q {
			weights[i] += x * k[i][head*dim+d]
		}
		weights[i] = bend(weights[i]*r.c.ScoreScale(), r.c.ScoreCap)
		top = max(top, weights[i])
	}
	for i := from; i <= t; i++ {
		weights[i] = math.Exp(weights[i] - top)
		norm += weights[i]
	}
	for i := from; i <= t; i++ {
		for d := range out {
			out[d] += weights[i] / norm * v[i][head*dim+d]
		}
	}
}
