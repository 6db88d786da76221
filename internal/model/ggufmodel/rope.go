package ggufmodel

import (
	"cmp"
	"math"
)

// Tensors that divide the frequencies of the rotation, one number for each pair.
const (
	freqsTensor = "rope_freqs.weight"
	longTensor  = "rope_factors_long.weight"
	shortTensor = "rope_factors_short.weight"
)

// rope writes rope_theta, rope_scaling and partial_rotary_factor.
func (c *converter) rope(headDim int) {
	theta, ok := c.real("rope.freq_base")
	if !ok {
		theta = 10000
	}
	c.config["rope_theta"] = theta
	rotary, ok, err := c.keys.Int(c.key("rope.dimension_count"))
	if c.fail(err); !ok {
		rotary = headDim
	}
	if rotary != headDim {
		c.config["partial_rotary_factor"] = float64(rotary) / float64(headDim)
	}
	if scaling := c.scaling(theta, rotary); scaling != nil {
		c.config["rope_scaling"] = scaling
	}
}

// scaling gives rope_scaling, nil for none.
func (c *converter) scaling(theta float64, rotary int) map[string]any {
	kind, _, err := c.keys.Text(c.key("rope.scaling.type"))
	c.fail(err)
	original, hasOriginal, err := c.keys.Int(c.key("rope.scaling.original_context_length"))
	c.fail(err)
	if c.hasTensor(longTensor) || c.hasTensor(shortTensor) {
		kind = "longrope"
	}
	if kind == "" && c.keys.Has(c.key("rope.scale_linear")) {
		kind = "linear"
	}
	if c.hasTensor(freqsTensor) {
		if kind != "" && kind != "none" {
			c.fail(unsupportedf("%s beside %s %q", freqsTensor, c.key("rope.scaling.type"), kind))
		}
		return c.divided(theta, rotary)
	}
	switch kind {
	case "", "none":
		return nil
	case "linear":
		return map[string]any{"rope_type": "linear", "factor": c.factor()}
	case "yarn":
		s := map[string]any{"rope_type": "yarn", "factor": c.factor()}
		if hasOriginal {
			s["original_max_position_embeddings"] = original
		}
		for field, key := range map[string]string{"beta_fast": "yarn_beta_fast", "beta_slow": "yarn_beta_slow"} {
			if v, ok := c.real("rope.scaling." + key); ok {
				s[field] = v
			}
		}
		if a := c.attention(); a != 1 {
			s["attention_factor"] = a * (0.1*math.Log(c.factor()) + 1)
		}
		return s
	case "longrope":
		s := map[string]any{"rope_type": "longrope", "long_factor": c.list(longTensor), "short_factor": c.list(shortTensor)}
		if hasOriginal {
			s["original_max_position_embeddings"] = original
		}
		return s
	}
	c.fail(unsupportedf("%s %q; known are none, linear, yarn, longrope", c.key("rope.scaling.type"), kind))
	return nil
}

// factor returns the factor by which the context is extended.
func (c *converter) factor() float64 {
	for _, name := range []string{"rope.scaling.factor", "rope.scale_linear"} {
		v, ok := c.real(name)
		if ok && !(v > 0) {
			c.fail(badf("%s is %v, not above 0", c.key(name), v))
		}
		if ok {
			return cmp.Or(max(v, 0), 1)
		}
	}
	return 1
}

// attention is the factor by which the file multiplies that of yarn.
func (c *converter) attention() float64 {
	for _, name := range []string{"rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor"} {
		if v, ok := c.real(name); ok {
			return v
		}
	}
	return 1
}

// list reads a tensor of numbers.
func (c *converter) list(tensor string) []float32 {
	values, err := c.floats(tensor)
	c.fail(err)
	for _, v := range values {
		if !(v > 0) || math.IsInf(float64(v), 0) {
			c.fail(badf("tensor %s has %v, not a number above 0", tensor, v))
			return nil
		}
	}
	return values
}

// divided returns the scaling of a file that holds divisors for all frequencies. Files store
// the rule of Llama 3.1 and later as such divisors: if they match its published settings,
// divided returns the rule, else the divisors.
func (c *converter) divided(theta float64, rotary int) map[string]any {
	divisors := c.list(freqsTensor)
	if len(divisors) != rotary/2 {
		c.fail(badf("tensor %s has %d numbers for %d pairs", freqsTensor, len(divisors), rotary/2))
		return nil
	}
	factor := float64(divisors[0])
	for _, d := range divisors {
		factor = max(factor, float64(d))
	}
	const low, high, original = 1.0, 4.0, 8192
	if factor == 1 {
		return nil
	}
	for i, d := range divisors {
		wavelength := 2 * math.Pi * math.Pow(theta, float64(2*i)/float64(rotary))
		want := factor
		if wavelength < original/high {
			want = 1
		} else if wavelength <= original/low {
			smooth := (original/wavelength - low) / (high - low)
			want = 1 / ((1-smooth)/factor + smooth)
		}
		if math.Abs(float64(d)-want) > 1e-4*want {
			return map[string]any{
				"rope_type": "longrope", "long_factor": divisors, "short_factor": divisors, "attention_factor": 1.0,
				"original_max_position_embeddings": c.number("max_position_embeddings"),
			}
		}
	}
	return map[string]any{
		"rope_type": "llama3", "factor": factor, "low_freq_factor": low, "high_freq_factor": high,
		"original_max_position_embeddings": original,
	}
}
