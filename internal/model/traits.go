package model

import (
	"slices"
)

// Features beside the plain decoder that several families share. Each reader checks its
// fields, so that engines can trust a Config.

// maxExperts bounds the experts of a layer.
const maxExperts = 1 << 12

// allLayers is a rule that is true for every layer.
func allLayers(int) bool { return true }

// fullAttention and slidingAttention are the known values of layer_types.
const (
	fullAttention    = "full_attention"
	slidingAttention = "sliding_attention"
)

// readWindow sets which layers attend only to the last window positions: those that
// layer_types lists as sliding, or else those for which the family's rule is true. A
// window of 0 means that there is none.
func readWindow(f fields, c *Config, window int, rule func(layer int) bool) {
	types := f.texts("layer_types")
	if *f.err != nil { // the rule may divide by a refused value
		return
	}
	for _, t := range types {
		if t != fullAttention && t != slidingAttention {
			f.fail(ErrUnsupported, "layer_types", "%q is unknown; known are %s, %s", t, fullAttention, slidingAttention)
			return
		}
	}
	if slices.Contains(types, slidingAttention) {
		if len(types) != c.Layers {
			f.fail(ErrConfig, "layer_types", "%d entries, num_hidden_layers is %d", len(types), c.Layers)
			return
		}
		if window == 0 {
			f.fail(ErrConfig, "layer_types", "some layers have a sliding window, but its size is not set")
			return
		}
	}
	if types != nil {
		rule = func(layer int) bool { return layer < len(types) && types[layer] == slidingAttention }
	}
	if window == 0 {
		return
	}
	if c.Windowed = layersWhere(c.Layers, rule); c.Windowed != nil {
		c.Window = window
	}
}

// readExperts sets which layers have experts.
func readExperts(f fields, c *Config, moe MoE, rule func(layer int) bool) {
	if *f.err != nil {
		return
	}
	if moe.Active > moe.Experts {
		f.fail(ErrConfig, "num_experts_per_tok", "%d is more than the %d experts", moe.Active, moe.Experts)
		return
	}
	if moe.Sparse = layersWhere(c.Layers, rule); moe.Sparse != nil {
		c.MoE = moe
	}
}

// layersWhere evaluates a rule for n layers. It returns nil if the rule is true for none.
func layersWhere(n int, rule func(layer int) bool) []bool {
	list := make([]bool, n)
	for i := range list {
		list[i] = rule(i)
	}
	if !slices.Contains(list, true) {
		return nil
	}
	return list
}

// readPartialRotary reads which leading part of each head is rotated. Like the reference
// it rounds down to a whole number of values.
func readPartialRotary(f fields, c *Config) {
	part := f.number("partial_rotary_factor", 1)
	if f.has("rope_parameters") { // the spelling of transformers 5
		s, _ := f.object("rope_parameters")
		part = s.number("partial_rotary_factor", part)
	}
	dim := int(float64(c.HeadDim) * part)
	switch {
	case part == 1 || *f.err != nil:
	case !(part > 0 && part < 1) || dim < 2 || dim%2 != 0:
		f.fail(ErrConfig, "partial_rotary_factor", "%v of %d values does not make pairs", part, c.HeadDim)
	default:
		c.RotaryDim = dim
	}
}
