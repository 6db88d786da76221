package model

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Roles of a model's vision part. Those from RoleVisionNorm on exist in each layer of the
// tower, and the others once.
const (
	RolePatch     Role = numRoles + 1 + iota // [vision hidden, 3, patch size, patch size], with Grid [vision hidden, 3, frames, …]
	RolePatchBias                            // [vision hidden]
	RoleClass                                // [vision hidden]
	RolePosition                             // [positions, vision hidden]
	RoleVisionPreNorm
	RoleVisionPreNormBias
	RoleVisionPostNorm
	RoleVisionPostNormBias

	RoleProjectNorm // [vision hidden]
	RoleProjectNormBias
	// RoleProjectIn is [hidden, vision hidden × factor²]; that of [ProjectPool] is
	// [vision hidden, hidden], transposed, and that of [ProjectMerge] is square.
	RoleProjectIn
	RoleProjectInBias  // [rows of RoleProjectIn]
	RoleProjectOut     // [hidden, rows of RoleProjectIn]
	RoleProjectOutBias // [hidden]
	RoleNewline        // [hidden]

	RoleVisionNorm // [vision hidden], before attention
	RoleVisionNormBias
	RoleVisionQ // [vision hidden, vision hidden]
	RoleVisionQBias
	RoleVisionK
	RoleVisionKBias
	RoleVisionV
	RoleVisionVBias
	RoleVisionO
	RoleVisionOBias
	RoleVisionMLPNorm // [vision hidden]
	RoleVisionMLPNormBias
	RoleVisionUp // [vision ffn, vision hidden]
	RoleVisionUpBias
	RoleVisionGate // [vision ffn, vision hidden]
	RoleVisionGateBias
	RoleVisionDown // [vision hidden, vision ffn]
	RoleVisionDownBias
	endVision
)

// Vision reports whether tensors of this role belong to the vision part.
func (r Role) Vision() bool { return r > numRoles }

// visionFamily describes as data what a family adds to read images.
type visionFamily struct {
	// read reads the fields. nil means that the checkpoint reads no images.
	read func(f fields, c *Config) *Vision
	// names maps a role to the tensor name. It begins with "tower." or "projector.",
	// which stand for a root, or "beside.", which stands for the projector's root
	// without its own name; %d stands for the layer.
	names map[Role]string
	// fused lists tensors of several roles. Checkpoints may have tensors with the roles' own
	// names in place of all of these; new ones have not.
	fused []fused
	// towerRoots and projectorRoots are the beginnings of names in published checkpoints;
	// the first one is that of new ones.
	towerRoots, projectorRoots []string
}

// towerRoots returns the roots of towers under the name vision_tower.
func towerRoots() []string {
	return []string{"vision_tower.vision_model.", "model.vision_tower.vision_model.", "model.vision_tower.", "vision_tower."}
}

// towerNames returns the tensor names that CLIP and SigLIP share. pre_layrnorm is spelled
// as CLIP does.
func towerNames() map[Role]string {
	names := map[Role]string{
		RolePatch:     "tower.embeddings.patch_embedding.weight",
		RolePatchBias: "tower.embeddings.patch_embedding.bias",
		RoleClass:     "tower.embeddings.class_embedding",
		RolePosition:  "tower.embeddings.position_embedding.weight",
	}
	for role, name := range map[Role]string{
		RoleVisionPreNorm:  "tower.pre_layrnorm",
		RoleVisionPostNorm: "tower.post_layernorm",
		RoleVisionNorm:     "tower.encoder.layers.%d.layer_norm1",
		RoleVisionQ:        "tower.encoder.layers.%d.self_attn.q_proj",
		RoleVisionK:        "tower.encoder.layers.%d.self_attn.k_proj",
		RoleVisionV:        "tower.encoder.layers.%d.self_attn.v_proj",
		RoleVisionO:        "tower.encoder.layers.%d.self_attn.out_proj",
		RoleVisionMLPNorm:  "tower.encoder.layers.%d.layer_norm2",
		RoleVisionUp:       "tower.encoder.layers.%d.mlp.fc1",
		RoleVisionDown:     "tower.encoder.layers.%d.mlp.fc2",
	} {
		names[role], names[role+1] = name+".weight", name+".bias"
	}
	return names
}

// shape returns the shape of a role for a text model of so many values; nil if there is no
// such tensor.
func (v Vision) shape(r Role, hidden int) []int {
	when := func(has bool, shape ...int) []int {
		if !has {
			return nil
		}
		return shape
	}
	p, inner := v.Projector, hidden
	if p.Kind == ProjectMerge {
		inner = v.Hidden * p.Factor * p.Factor
	}
	switch r {
	case RolePatch:
		if v.Grid {
			return []int{v.Hidden, 3, v.Frames, v.PatchSize, v.PatchSize}
		}
		return []int{v.Hidden, 3, v.PatchSize, v.PatchSize}
	case RolePatchBias:
		return when(v.PatchBias, v.Hidden)
	case RoleClass:
		return when(v.ClassToken, v.Hidden)
	case RolePosition:
		return when(!v.Grid, v.Positions(), v.Hidden)
	case RoleVisionPreNorm, RoleVisionPreNormBias:
		return when(v.PreNorm, v.Hidden)
	case RoleVisionPostNorm, RoleVisionPostNormBias:
		return when(v.PostNorm, v.Hidden)
	case RoleProjectNorm:
		return when(p.Kind == ProjectPool || p.Kind == ProjectMerge, v.Hidden)
	case RoleProjectNormBias:
		return when(p.Kind == ProjectMerge && !v.RMSNorm, v.Hidden)
	case RoleVisionNormBias, RoleVisionMLPNormBias:
		return when(!v.RMSNorm, v.Hidden)
	case RoleProjectIn:
		if p.Kind == ProjectPool {
			return []int{v.Hidden, hidden}
		}
		return []int{inner, v.Hidden * p.Factor * p.Factor}
	case RoleProjectOut:
		return when(v.twoLayers(), hidden, inner)
	case RoleProjectInBias:
		return when(v.twoLayers() && p.Bias, inner)
	case RoleProjectOutBias:
		return when(v.twoLayers() && p.Bias, hidden)
	case RoleNewline:
		return when(v.Newline, hidden)
	case RoleVisionQ, RoleVisionK, RoleVisionV, RoleVisionO:
		return []int{v.Hidden, v.Hidden}
	case RoleVisionUp:
		return []int{v.FFN, v.Hidden}
	case RoleVisionUpBias:
		return []int{v.FFN}
	case RoleVisionGate:
		return when(v.Gated, v.FFN, v.Hidden)
	case RoleVisionGateBias:
		return when(v.Gated, v.FFN)
	case RoleVisionDown:
		return []int{v.Hidden, v.FFN}
	}
	return []int{v.Hidden}
}

// twoLayers reports whether the projector has two linear layers.
func (v Vision) twoLayers() bool {
	return v.Projector.Kind == ProjectMLP || v.Projector.Kind == ProjectMerge
}

// specs returns the tensors of the vision part.
func (n visionNaming) specs(v Vision, hidden int) []TensorSpec {
	var specs []TensorSpec
	add := func(from, to Role, layer int) {
		for r := from; r < to; r++ {
			if shape, name := v.shape(r, hidden), n.names[r]; shape != nil && name != "" && !n.shared(r) {
				specs = append(specs, TensorSpec{Role: r, Layer: layer, Name: n.fill(name, layer), Shape: shape})
			}
			for _, f := range n.fused {
				if f.roles[0] == r && n.shared(r) { // the others come with the first
					specs = append(specs, f.spec(n.fill(f.name, layer), layer, 1, func(r Role) []int { return v.shape(r, hidden) }))
				}
			}
		}
	}
	add(RolePatch, RoleVisionPostNorm, 0)
	for layer := range v.Layers {
		add(RoleVisionNorm, endVision, layer)
	}
	add(RoleVisionPostNorm, RoleVisionNorm, 0)
	return specs
}

// visionNaming determines the names of one checkpoint's vision tensors.
type visionNaming struct {
	*visionFamily
	tower, projector string // roots
	found            bool   // the checkpoint has some of these tensors
	apart            bool   // roles of fused tensors have their own
}

// shared reports whether a role is part of a fused tensor.
func (n visionNaming) shared(r Role) bool {
	return !n.apart && slices.ContainsFunc(n.fused, func(f fused) bool { return slices.Contains(f.roles, r) })
}

// newVisionNaming detects the roots. all are the names of a checkpoint, nil for one that
// is not written yet.
func newVisionNaming(fam *visionFamily, all []string) visionNaming {
	n := visionNaming{visionFamily: fam}
	n.tower, n.projector = n.detect(fam.towerRoots, all), n.detect(fam.projectorRoots, all)
	n.found = n.tower != "" || n.projector != ""
	n.tower, n.projector = cmp.Or(n.tower, fam.towerRoots[0]), cmp.Or(n.projector, fam.projectorRoots[0])
	for _, f := range fam.fused {
		n.apart = n.apart || slices.Contains(all, n.fill(fam.names[f.roles[0]], 0))
	}
	return n
}

// detect returns the longest root with which a name begins, "" for none.
func (visionNaming) detect(roots, all []string) (best string) {
	for _, root := range roots {
		if len(root) > len(best) && slices.ContainsFunc(all, func(name string) bool { return strings.HasPrefix(name, root) }) {
			best = root
		}
	}
	return best
}

func (n visionNaming) fill(pattern string, layer int) string {
	root, rest := n.tower, strings.TrimPrefix(pattern, "tower.")
	if after, ok := strings.CutPrefix(pattern, "projector."); ok {
		root, rest = n.projector, after
	} else if after, ok := strings.CutPrefix(pattern, "beside."); ok {
		root, rest = strings.TrimSuffix(n.projector, "multi_modal_projector."), after
	}
	return root + strings.Replace(rest, "%d", strconv.Itoa(layer), 1)
}

// ignorable reports whether checkpoints contain a tensor that is not used: layers and norms
// behind the one that the projector reads, the head of a classifier, and numbers of
// positions.
func (n visionNaming) ignorable(name string) bool {
	rest, ok := strings.CutPrefix(name, n.tower)
	if !ok {
		return false
	}
	for _, part := range []string{"encoder.layers.", "post_layernorm.", "head.", "embeddings.position_ids"} {
		if strings.HasPrefix(rest, part) {
			return true
		}
	}
	return false
}
