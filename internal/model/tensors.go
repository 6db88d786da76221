package model

import (
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// Tensor is one mapped tensor; see [safetensors.Tensor].
type Tensor = safetensors.Tensor

// Role is what a tensor is for, whatever a family calls it. Linear weights have
// the shape [out, in].
type Role int

// The roles; those before RoleAttnNorm exist once, the others in each layer.
const (
	RoleEmbed     Role = iota // [vocab, hidden]
	RoleFinalNorm             // [hidden]
	RoleHead                  // [vocab, hidden]; absent when tied

	RoleAttnNorm // [hidden]
	RoleQ        // [heads × head dim, hidden]
	RoleK        // [kv heads × head dim, hidden]
	RoleV        // [kv heads × head dim, hidden]
	RoleO        // [hidden, heads × head dim]
	RoleQBias
	RoleKBias
	RoleVBias
	RoleOBias
	RoleQNorm // [head dim]
	RoleKNorm // [head dim]

	RoleMLPNorm // [hidden]
	RoleGate    // [ffn, hidden]
	RoleUp      // [ffn, hidden]
	RoleDown    // [hidden, ffn]
	RoleGateBias
	RoleUpBias
	RoleDownBias
	numRoles
)

// PerLayer reports whether each layer has a tensor of this role.
func (r Role) PerLayer() bool { return r >= RoleAttnNorm }

// TensorSpec is a tensor that a checkpoint must have.
type TensorSpec struct {
	Role  Role
	Layer int // 0 for roles that exist once
	Name  string
	Shape []int
}

// shape is the shape of a role, nil when this model has no such tensor.
func (c Config) shape(r Role) []int {
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	when := func(has bool, shape ...int) []int {
		if !has {
			return nil
		}
		return shape
	}
	switch r {
	case RoleEmbed:
		return []int{c.Vocab, c.Hidden}
	case RoleHead:
		return when(!c.TiedHead, c.Vocab, c.Hidden)
	case RoleFinalNorm, RoleAttnNorm, RoleMLPNorm:
		return []int{c.Hidden}
	case RoleQ:
		return []int{q, c.Hidden}
	case RoleK, RoleV:
		return []int{kv, c.Hidden}
	case RoleO:
		return []int{c.Hidden, q}
	case RoleQBias:
		return when(c.QKVBias, q)
	case RoleKBias, RoleVBias:
		return when(c.QKVBias, kv)
	case RoleOBias:
		return when(c.OutBias, c.Hidden)
	case RoleQNorm, RoleKNorm:
		return when(c.QKNorm, c.HeadDim)
	case RoleGate, RoleUp:
		return []int{c.FFN, c.Hidden}
	case RoleDown:
		return []int{c.Hidden, c.FFN}
	case RoleGateBias, RoleUpBias:
		return when(c.MLPBias, c.FFN)
	case RoleDownBias:
		return when(c.MLPBias, c.Hidden)
	}
	return nil
}

// Tensors lists what a checkpoint with this configuration must hold: embedding,
// layers in order, final norm, head.
func (c Config) Tensors() []TensorSpec {
	var specs []TensorSpec
	names := c.family().names
	add := func(r Role, layer int) {
		if shape := c.shape(r); shape != nil {
			specs = append(specs, TensorSpec{r, layer, nameOf(names[r], layer), shape})
		}
	}
	add(RoleEmbed, 0)
	for layer := range c.Layers {
		for r := RoleAttnNorm; r < numRoles; r++ {
			add(r, layer)
		}
	}
	add(RoleFinalNorm, 0)
	add(RoleHead, 0)
	return specs
}

// ignorable gives the names of tensors that a checkpoint may carry to no purpose.
func (c Config) ignorable() map[string]bool {
	fam := c.family()
	names := make(map[string]bool)
	if c.TiedHead {
		names[fam.names[RoleHead]] = true
	}
	for _, pattern := range fam.ignored {
		for layer := range c.Layers {
			names[nameOf(pattern, layer)] = true
		}
	}
	return names
}
