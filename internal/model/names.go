package model

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// llamaNames returns the tensor names that most families share.
func llamaNames() map[Role]string {
	return map[Role]string{
		RoleEmbed:     "model.embed_tokens.weight",
		RoleFinalNorm: "model.norm.weight",
		RoleHead:      "lm_head.weight",

		RoleAttnNorm: "model.layers.%d.input_layernorm.weight",
		RoleQ:        "model.layers.%d.self_attn.q_proj.weight",
		RoleK:        "model.layers.%d.self_attn.k_proj.weight",
		RoleV:        "model.layers.%d.self_attn.v_proj.weight",
		RoleO:        "model.layers.%d.self_attn.o_proj.weight",
		RoleQBias:    "model.layers.%d.self_attn.q_proj.bias",
		RoleKBias:    "model.layers.%d.self_attn.k_proj.bias",
		RoleVBias:    "model.layers.%d.self_attn.v_proj.bias",
		RoleOBias:    "model.layers.%d.self_attn.o_proj.bias",
		RoleQNorm:    "model.layers.%d.self_attn.q_norm.weight",
		RoleKNorm:    "model.layers.%d.self_attn.k_norm.weight",

		RoleMLPNorm:  "model.layers.%d.post_attention_layernorm.weight",
		RoleGate:     "model.layers.%d.mlp.gate_proj.weight",
		RoleUp:       "model.layers.%d.mlp.up_proj.weight",
		RoleDown:     "model.layers.%d.mlp.down_proj.weight",
		RoleGateBias: "model.layers.%d.mlp.gate_proj.bias",
		RoleUpBias:   "model.layers.%d.mlp.up_proj.bias",
		RoleDownBias: "model.layers.%d.mlp.down_proj.bias",
	}
}

// gemmaNames returns the names for four norms in a layer. In Llama,
// post_attention_layernorm is before the MLP. Here it is after attention, and the one
// before the MLP is pre_feedforward_layernorm.
func gemmaNames() map[Role]string {
	return withNames(llamaNames(), map[Role]string{
		RolePostAttnNorm: "model.layers.%d.post_attention_layernorm.weight",
		RoleMLPNorm:      "model.layers.%d.pre_feedforward_layernorm.weight",
		RolePostMLPNorm:  "model.layers.%d.post_feedforward_layernorm.weight",
	})
}

// withNames returns names with changes and additions.
func withNames(names, more map[Role]string) map[Role]string {
	maps.Copy(names, more)
	return names
}

// without returns names without some roles.
func without(names map[Role]string, roles ...Role) map[Role]string {
	for _, r := range roles {
		delete(names, r)
	}
	return names
}

// naming determines the tensor names of one checkpoint.
type naming struct {
	fam  family
	root string // of all names but the head's, "model."
	// has reports whether the checkpoint holds a tensor. It is nil for a checkpoint that
	// is not written yet; roles that may be stored either way then have tensors of their
	// own.
	has func(name string) bool
	// stacked: roles that may be stored either way share a tensor.
	stacked bool
	vision  visionNaming // of a family that reads images
}

// newNaming detects the roots of a checkpoint's tensor names, which are all. has and all
// are nil for a checkpoint that is not written yet.
func newNaming(fam family, all []string, has func(name string) bool) naming {
	n := naming{fam: fam, root: "model.", has: has}
	if len(fam.roots) > 0 {
		n.root = fam.roots[0]
	}
	if fam.vision != nil {
		n.vision = newVisionNaming(fam.vision, all)
	}
	for _, root := range fam.roots {
		other := n
		if other.root = root; has != nil && has(other.fill(fam.names[RoleEmbed])) {
			return other
		}
	}
	return n
}

// fill inserts numbers, the layer and the expert, and the root into a name.
func (n naming) fill(pattern string, numbers ...int) string {
	if rest, ok := strings.CutPrefix(pattern, "model."); ok {
		pattern = n.root + rest
	} else if outer, ok := strings.CutSuffix(n.root, ".model."); ok {
		pattern = outer + "." + pattern
	}
	for _, number := range numbers {
		pattern = strings.Replace(pattern, "%d", strconv.Itoa(number), 1)
	}
	return pattern
}

// of returns the tensor of a role: its own, or one that it shares with others.
func (n naming) of(r Role, layer int) (own string, shared *fused) {
	own = n.fam.names[r]
	for i := range n.fam.fused {
		f := &n.fam.fused[i]
		if !slices.Contains(f.roles, r) {
			continue
		}
		found := n.has != nil && !n.has(n.fill(own, layer, 0)) && n.has(n.fill(f.name, layer))
		if own == "" || n.stacked || found {
			return "", f
		}
	}
	return own, nil
}
