package model

import (
	"slices"
	"strings"
)

// family describes a kind of model as data: the checkpoints it covers, the defaults of
// their config.json, their additions to the common decoder, and their tensor names. The
// forward pass is the same for all and reads [Config].
type family struct {
	// modelType and architectures are the names in config.json.
	modelType     string
	architectures []string
	defaults      defaults
	// actField is the field of the activation; "" means hidden_act.
	actField string
	// nested: in a checkpoint that also reads images, the fields of the text model are
	// under text_config.
	nested bool
	// texts are the families of the text model inside one that reads images, which differ in
	// defaults and traits; the first one where the checkpoint names none. nil if there is no
	// choice.
	texts []family
	// inner is the model_type in text_config; "" if it is modelType, or one of texts.
	inner string
	// grids: the rows of images rotate by their place in a grid.
	grids bool
	// traits reads the fields that only this family has.
	traits func(f fields, c *Config)
	// names maps a role to the tensor name; the first %d stands for the layer, the
	// second for the expert.
	names map[Role]string
	// fused lists tensors of several roles. Roles that are also in names may be stored
	// either way.
	fused []fused
	// roots lists replacements of the leading "model." of names. The first one found
	// counts, and the first of all where none is. nil if there are none.
	roots []string
	// vision says how the family reads images; nil if it does not.
	vision *visionFamily
	// ignored lists further tensors that checkpoints contain but that are not used.
	ignored []string
}

// fused is a tensor that holds the rows of several roles one after the other. For roles
// of experts its additional first dimension is the expert.
type fused struct {
	name  string
	roles []Role
}

// defaults holds the values of fields that a family's config.json may leave out; 0 marks
// a required field.
type defaults struct {
	context   int
	headDim   int // 0: hidden size / heads
	kvHeads   int // 0: as heads
	normEps   float64
	ropeTheta float64
	tied      bool
	act       Activation

	// Nested files may also leave out sizes that equal the defaults of the class.
	layers, hidden, heads, ffn, vocab int
}

// families returns all known families. To add one, write a file with such a function and
// a line here.
func families() []family {
	return []family{
		llama(), mistral(), mixtral(), qwen2(), qwen3(), qwen3MoE(), gemma2(), gemma3(), phi3(),
		smolVLM(), idefics3(), llava(), llavaNext(), qwen2VL(), qwen25VL(),
	}
}

// Families returns the model_type of all known families.
func Families() []string {
	var names []string
	for _, fam := range families() {
		names = append(names, fam.modelType)
	}
	return names
}

// family returns the family of a parsed configuration.
func (c Config) family() family {
	for _, fam := range families() {
		if fam.modelType == c.Family {
			return fam
		}
	}
	return family{} // a Config that ParseConfig did not make has no tensors
}

// findFamily picks the family of a config.json: by its architecture, or by its model type
// if there is no architecture.
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
