package ggufmodel

import (
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// Tensors of the patches of two frames.
const (
	patchTensor       = "v.patch_embd.weight"
	secondPatchTensor = "v.patch_embd.weight.1"
)

// plans gives the tensors that one of a mmproj file becomes: none for the second frame of
// patches, three for one of queries, keys and values. Tensors that the projector does not have
// are refused, because they would change the rows.
func (m *mmproj) plans(t gguf.Tensor) ([]plan, error) {
	switch {
	case m.twoFrames && t.Name == secondPatchTensor:
		return nil, nil // goes with the first
	case m.twoFrames && t.Name == patchTensor:
		p, err := m.frames(t, m.vision.tensors[secondPatchTensor])
		return []plan{p}, err
	}
	own, layer := split(strings.TrimPrefix(t.Name, "v."))
	if layer < 0 || !strings.HasPrefix(t.Name, "v.") {
		own, layer = t.Name, -1
	}
	if part, merged := strings.CutPrefix(own, "attn_qkv."); merged {
		return m.thirds(t, layer, part)
	}
	if m.swapped {
		if part, is := strings.CutPrefix(own, "ffn_up."); is {
			own = "ffn_down." + part
		} else if part, is := strings.CutPrefix(own, "ffn_down."); is {
			own = "ffn_up." + part
		}
	}
	p, err := m.plan(t, own, layer)
	return []plan{p}, err
}

// plan decides what is done to a tensor; own is its name in the table.
func (m *mmproj) plan(t gguf.Tensor, own string, layer int) (plan, error) {
	pattern := m.names[own]
	if pattern == "" || (layer < 0) == strings.Contains(pattern, "%d") {
		return plan{}, unsupportedf("%s: tensor %s, which projectors of type %s do not have here", m.file, t.Name, m.name)
	}
	p := plan{source: t, tensor: safetensors.Tensor{
		Name:  strings.Replace(pattern, "%d", strconv.Itoa(layer), 1),
		DType: safetensors.DType(t.Type.String()), Shape: t.Shape, File: m.file, Offset: t.Offset,
	}}
	blocks := t.Type.Dequantizes() && t.Type.BlockWeights() > 1
	switch own {
	case patchTensor, "v.position_embd.weight", "mm.input_projection.weight":
		p.dequantize = blocks // engines want these plain
	case "mm.soft_emb_norm.weight":
		p.minusOne = t.Type.Dequantizes()
	}
	p.dequantize = p.dequantize || blocks && len(t.Shape) == 1
	if p.dequantize || p.minusOne {
		p.tensor.DType = safetensors.F32
	}
	return p, nil
}

// thirds cuts a tensor into those of queries, keys and values.
func (m *mmproj) thirds(t gguf.Tensor, layer int, part string) ([]plan, error) {
	rows := append(t.Shape, 0)[0] //nolint:gocritic // of no dimension: none
	if rows%3 != 0 || t.Size%3 != 0 || t.Size/3%int64(max(t.Type.BlockBytes(), 1)) != 0 {
		return nil, badf("%s: tensor %s of %d rows does not hold queries, keys and values", m.file, t.Name, rows)
	}
	var all []plan
	for i, own := range []string{"attn_q.", "attn_k.", "attn_v."} {
		third := t
		third.Shape = append([]int{rows / 3}, t.Shape[1:]...)
		third.Size = t.Size / 3
		third.Offset += int64(i) * third.Size
		third.Data = t.Data[int64(i)*third.Size : int64(i+1)*third.Size : int64(i+1)*third.Size]
		p, err := m.plan(third, own+part, layer)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// frames puts the patches of two frames into one tensor: [hidden, 3, 2, rows, columns].
func (m *mmproj) frames(first, second gguf.Tensor) (plan, error) {
	p, err := m.plan(first, patchTensor, -1)
	if err != nil {
		return p, err
	}
	switch first.Type {
	case gguf.F32, gguf.F16, gguf.BF16:
	default:
		return p, unsupportedf("%s: tensor %s has type %s; known for patches are F32, F16, BF16", m.file, patchTensor, first.Type)
	}
	if second.Type != first.Type || len(first.Shape) != 4 || len(second.Shape) != 4 || [4]int(first.Shape) != [4]int(second.Shape) {
		return p, badf("%s: tensors %s and %s have the shapes %v and %v in %s and %s, want equal ones of four dimensions",
			m.file, patchTensor, secondPatchTensor, first.Shape, second.Shape, first.Type, second.Type)
	}
	p.second = &second
	p.tensor.Shape = []int{first.Shape[0], first.Shape[1], 2, first.Shape[2], first.Shape[3]}
	return p, nil
}
