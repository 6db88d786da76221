package ggufmodel

import (
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// plan says how a tensor of a folder is made of one of the file.
type plan struct {
	tensor safetensors.Tensor // as it will be, without Data
	source gguf.Tensor        // of the file; Data is all of it or one expert's part
	// heads: the rows of this many heads are put back in order; 0: they are.
	heads int
	// dequantize: blocks become float32. Matrices keep theirs.
	dequantize bool
	// minusOne: one is taken from each weight, which is float32 then.
	minusOne bool
	// second, if set, has the same shape: of three dimensions in front of the last two, the
	// last one counts the two tensors.
	second *gguf.Tensor
}

// copied reports whether the tensor takes memory of its own.
func (p *plan) copied() bool { return p.heads > 0 || p.dequantize || p.minusOne || p.second != nil }

// split cuts the layer off a name: "blk.3.attn_q.weight" is layer 3 of
// "attn_q.weight".
func split(name string) (rest string, layer int) {
	number, tail, ok := strings.Cut(strings.TrimPrefix(name, "blk."), ".")
	if !ok || !strings.HasPrefix(name, "blk.") {
		return name, -1
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || strconv.Itoa(n) != number {
		return name, -1
	}
	return tail, n
}

// maxExperts bounds how many tensors one of the file becomes.
const maxExperts = 1 << 12

// plans gives the tensors that a tensor of the file becomes: one for each expert,
// one else. A tensor without a name in a folder keeps its own.
func (c *Checkpoint) plans(t gguf.Tensor) []plan {
	rest, layer := split(t.Name)
	pattern, ok := c.arch.names[rest]
	if under, inner := strings.CutPrefix(pattern, "model."); inner && c.vision != nil {
		pattern = c.vision.root + under
	}
	if !ok || (layer < 0) == strings.Contains(pattern, "%d") {
		return []plan{c.plan(t, t.Name, rest)}
	}
	name := strings.Replace(pattern, "%d", strconv.Itoa(layer), 1)
	if !strings.Contains(name, "%d") {
		return []plan{c.plan(t, name, rest)}
	}
	if len(t.Shape) != 3 || t.Shape[0] > maxExperts {
		return []plan{c.plan(t, t.Name, rest)}
	}
	experts := t.Shape[0]
	size := t.Size / int64(experts)
	all := make([]plan, experts)
	for i := range all {
		part := t
		part.Shape, part.Size = t.Shape[1:], size
		part.Offset += int64(i) * size
		part.Data = t.Data[int64(i)*size : int64(i+1)*size : int64(i+1)*size]
		all[i] = c.plan(part, strings.Replace(name, "%d", strconv.Itoa(i), 1), rest)
	}
	return all
}

// plan decides what is done to a tensor; rest is its name in the file without the
// layer.
func (c *Checkpoint) plan(t gguf.Tensor, name, rest string) plan {
	p := plan{source: t, tensor: safetensors.Tensor{
		Name: name, DType: safetensors.DType(t.Type.String()), Shape: t.Shape, File: c.file.Name(), Offset: t.Offset,
	}}
	vector := len(t.Shape) == 1
	if t.Type.Dequantizes() && t.Type.BlockWeights() > 1 && vector {
		p.dequantize = true
	}
	if c.arch.plusOne && strings.HasSuffix(rest, "norm.weight") && t.Type.Dequantizes() {
		p.minusOne = true
	}
	if p.dequantize || p.minusOne {
		p.tensor.DType = safetensors.F32
	}
	if c.arch.interleaved {
		switch rest {
		case "attn_q.weight", "attn_q.bias":
			p.heads = c.heads
		case "attn_k.weight", "attn_k.bias":
			p.heads = c.kvHeads
		}
	}
	// Numbers that do not fit are told by whoever checks the shape.
	if p.heads > 0 && t.Shape[0]%(2*p.heads) != 0 {
		p.heads = 0
	}
	if p.heads > 0 && p.dequantize { // weights of a block cannot change places
		p.heads, p.dequantize, p.tensor.DType = 0, false, safetensors.DType(t.Type.String())
	}
	return p
}
