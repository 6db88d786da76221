package model

import (
	"fmt"
	"slices"
	"strings"
)

// family describes one kind of model as data: which checkpoints it covers, what
// their config.json may leave out, what they add to the common decoder, and how
// they call their tensors. The forward pass is the same for all and reads
// [Config].
type family struct {
	// modelType and architectures are the spellings in config.json.
	modelType     string
	architectures []string
	defaults      defaults
	// traits reads the fields that only this family has.
	traits func(f fields, c *Config)
	// names maps a role to the tensor name; %d stands for the layer.
	names map[Role]string
	// ignored are further tensor names that checkpoints carry to no purpose.
	ignored []string
}

// defaults are the values that a config.json of a family may leave out.
type defaults struct {
	context   int
	headDim   int // 0: hidden size / heads
	normEps   float64
	ropeTheta float64
}

// families is the table of known families. A new one is a file with such a
// function and a line here.
func families() []family {
	return []family{llama(), qwen3()}
}

// family finds the family of a parsed configuration.
func (c Config) family() family {
	for _, fam := range families() {
		if fam.modelType == c.Family {
			return fam
		}
	}
	return family{} // a Config that ParseConfig did not make has no tensors
}

// findFamily picks the family of a config.json: by its architecture, or by its
// model type when no architecture is given.
func findFamily(f fields) (family, string, error) {
	architecture := ""
	if list := f.texts("architectures"); len(list) > 0 {
		architecture = list[0]
	}
	modelType := f.text("model_type", "")
	if *f.err != nil {
		return family{}, "", *f.err
	}
	var known []string
	for _, fam := range families() {
		if architecture == "" && modelType == fam.modelType {
			return fam, fam.architectures[0], nil
		}
		if slices.Contains(fam.architectures, architecture) {
			return fam, architecture, nil
		}
		known = append(known, fam.architectures...)
	}
	switch {
	case architecture == "" && modelType == "":
		f.fail(ErrConfig, "architectures", "missing")
	case architecture == "":
		f.fail(ErrUnsupported, "model_type", "%q is unknown", modelType)
	case f.has("auto_map"):
		f.fail(ErrUnsupported, "architectures", "%q comes with its own code (auto_map), which is never run; known are %s",
			architecture, strings.Join(known, ", "))
	default:
		f.fail(ErrUnsupported, "architectures", "%q is unknown; known are %s", architecture, strings.Join(known, ", "))
	}
	return family{}, "", *f.err
}

// llamaNames are the tensor names that most families share.
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

// nameOf fills the layer into a tensor name.
func nameOf(pattern string, layer int) string {
	if strings.Contains(pattern, "%d") {
		return fmt.Sprintf(pattern, layer)
	}
	return pattern
}
