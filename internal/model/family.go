package model

import (
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
	// actField is the field of the activation, "" for hidden_act.
	actField string
	// nested: a checkpoint that reads images as well has the fields of its text
	// model under text_config.
	nested bool
	// traits reads the fields that only this family has.
	traits func(f fields, c *Config)
	// names maps a role to the tensor name; the first %d stands for the layer, the
	// second for the expert.
	names map[Role]string
	// fused are tensors of several roles. Roles that names has as well may come
	// either way.
	fused []fused
	// roots are what the leading "model." of names may be in its stead; the first
	// one found counts. Nil: nothing else.
	roots []string
	// ignored are further tensor names that checkpoints carry to no purpose.
	ignored []string
}

// fused is a tensor that holds the rows of several roles one after the other. For
// roles of experts it has a further first dimension, the expert.
type fused struct {
	name  string
	roles []Role
}

// defaults are the values that a config.json of a family may leave out; 0 stands
// for fields that must be there.
type defaults struct {
	context   int
	headDim   int // 0: hidden size / heads
	kvHeads   int // 0: as heads
	normEps   float64
	ropeTheta float64
	tied      bool
	act       Activation

	// Nested files leave out sizes too when they are those of the class.
	layers, hidden, heads, ffn, vocab int
}

// families is the table of known families. A new one is a file with such a
// function and a line here.
func families() []family {
	return []family{
		llama(), mistral(), mixtral(), qwen2(), qwen3(), qwen3MoE(), gemma2(), gemma3(), phi3(),
	}
}

// Families lists the known families by their model_type.
func Families() []string {
	var names []string
	for _, fam := range families() {
		names = append(names, fam.modelType)
	}
	return names
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
