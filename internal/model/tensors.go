package model

import (
	"slices"

	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// Tensor is one mapped tensor; see [safetensors.Tensor].
type Tensor = safetensors.Tensor

// Role is the purpose of a tensor, independent of a family's names. Linear weights have
// the shape [out, in].
type Role int

// Roles of the text model. Those before RoleAttnNorm exist once, the others in each layer,
// and those from RoleExpertGate on for each expert.
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
	RoleQNorm        // [head dim]
	RoleKNorm        // [head dim]
	RolePostAttnNorm // [hidden]

	RoleMLPNorm // [hidden]
	RoleGate    // [ffn, hidden]
	RoleUp      // [ffn, hidden]
	RoleDown    // [hidden, ffn]
	RoleGateBias
	RoleUpBias
	RoleDownBias
	RolePostMLPNorm // [hidden]
	RoleRouter      // [experts, hidden]

	RoleExpertGate // [expert ffn, hidden]
	RoleExpertUp   // [expert ffn, hidden]
	RoleExpertDown // [hidden, expert ffn]
	numRoles
)

// PerLayer reports whether each layer has a tensor of this role.
func (r Role) PerLayer() bool { return r >= RoleAttnNorm && r < numRoles || r >= RoleVisionNorm }

// PerExpert reports whether each expert has a tensor of this role.
func (r Role) PerExpert() bool { return r >= RoleExpertGate && r < numRoles }

// Norm reports whether tensors of this role are weights of an RMS norm.
func (r Role) Norm() bool {
	switch r {
	case RoleFinalNorm, RoleAttnNorm, RoleQNorm, RoleKNorm, RolePostAttnNorm, RoleMLPNorm, RolePostMLPNorm, RoleProjectNorm:
		return true
	}
	return false
}

// TensorSpec is a tensor that a checkpoint must have.
type TensorSpec struct {
	Role   Role // of the first part
	Layer  int  // 0 for roles that exist once
	Expert int  // 0 for roles that do not exist for each expert
	Name   string
	Shape  []int
	// Parts are the roles in the tensor, from its first row to its last; nil if there is
	// one role. The rows of a tensor of three dimensions are counted over the first two.
	Parts []Part
}

// Part is a run of rows of a tensor.
type Part struct {
	Role   Role
	Expert int
	Shape  []int
}

// shape returns the shape of a role in a layer, per expert for roles of experts; nil if
// there is no such tensor.
func (c Config) shape(r Role, layer int) []int {
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	sparse := r.PerLayer() && c.Sparse(layer)
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
	case RolePostAttnNorm, RolePostMLPNorm:
		return when(c.PostNorms, c.Hidden)
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
		return when(!sparse, c.FFN, c.Hidden)
	case RoleDown:
		return when(!sparse, c.Hidden, c.FFN)
	case RoleGateBias, RoleUpBias:
		return when(!sparse && c.MLPBias, c.FFN)
	case RoleDownBias:
		return when(!sparse && c.MLPBias, c.Hidden)
	case RoleRouter:
		return when(sparse, c.MoE.Experts, c.Hidden)
	case RoleExpertGate, RoleExpertUp:
		return when(sparse, c.MoE.FFN, c.Hidden)
	case RoleExpertDown:
		return when(sparse, c.Hidden, c.MoE.FFN)
	}
	return nil
}

// Tensors returns the tensors that a checkpoint with this configuration must hold:
// embedding, layers in order, final norm, head, then those of the vision part. If a family may store a role in several
// ways, it assumes a tensor of its own.
func (c Config) Tensors() []TensorSpec {
	return c.tensors(newNaming(c.family(), nil, nil))
}

func (c Config) tensors(n naming) []TensorSpec {
	var specs []TensorSpec
	add := func(r Role, layer int) {
		shape := c.shape(r, layer)
		if shape == nil {
			return
		}
		experts := 1
		if r.PerExpert() {
			experts = c.MoE.Experts
		}
		own, shared := n.of(r, layer)
		switch {
		case shared == nil:
			for e := range experts {
				specs = append(specs, TensorSpec{Role: r, Layer: layer, Expert: e, Name: n.fill(own, layer, e), Shape: shape})
			}
		case shared.roles[0] == r: // the others come with the first
			specs = append(specs, shared.spec(n.fill(shared.name, layer), layer, experts, func(r Role) []int { return c.shape(r, layer) }))
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
	if c.Vision != nil {
		specs = append(specs, n.vision.specs(*c.Vision, c.Hidden)...)
	}
	return specs
}

// spec returns the tensor of several roles, whose shapes differ in their rows at most.
func (f *fused) spec(name string, layer, experts int, shapeOf func(Role) []int) TensorSpec {
	spec := TensorSpec{Role: f.roles[0], Layer: layer, Name: name}
	for e := range experts {
		for _, r := range f.roles {
			shape := shapeOf(r)
			spec.Parts = append(spec.Parts, Part{r, e, shape})
			if spec.Shape == nil {
				spec.Shape = slices.Clone(shape)
				continue
			}
			spec.Shape[0] += shape[0]
		}
	}
	if spec.Role.PerExpert() {
		spec.Shape = []int{experts, spec.Shape[0] / experts, spec.Shape[1]}
	}
	return spec
}

// ignorable returns the names of unused tensors that a checkpoint, whose tensors are all,
// may contain.
func (c Config) ignorable(n naming, all []string) map[string]bool {
	names := make(map[string]bool)
	for _, name := range all {
		if c.Vision != nil && n.vision.ignorable(name) {
			names[name] = true
		}
	}
	if c.TiedHead {
		names[n.fill(n.fam.names[RoleHead])] = true
	}
	for _, pattern := range n.fam.ignored {
		for layer := range c.Layers {
			names[n.fill(pattern, layer)] = true
		}
	}
	return names
}
