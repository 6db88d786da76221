package model

import (
	"math"
	"strings"
)

// RoPE holds the rotary position settings.
type RoPE struct {
	Theta float64
	// Type is "default", "linear", "llama3" or "yarn"; the fields below belong to
	// the scaled ones.
	Type            string
	Factor          float64
	OriginalContext int     // llama3, yarn: positions of the first training
	LowFreqFactor   float64 // llama3
	HighFreqFactor  float64 // llama3
	BetaFast        float64 // yarn
	BetaSlow        float64 // yarn
	Truncate        bool    // yarn: round the borders of the ramp to whole dimensions
	// Attention multiplies cosines and sines; 1 except for yarn.
	Attention float64
}

// ropeTypes lists what readRoPE understands.
func ropeTypes() []string { return []string{"default", "linear", "llama3", "yarn"} }

// readRoPE reads rope_theta and rope_scaling, or rope_parameters which holds both
// and wins.
func readRoPE(f fields, defaultTheta float64, context int) RoPE {
	r := RoPE{Theta: f.positive("rope_theta", defaultTheta), Type: "default", Attention: 1}
	s, scaled := f.object("rope_parameters")
	if !scaled {
		s, scaled = f.object("rope_scaling")
	}
	if !scaled || *f.err != nil {
		return r
	}
	r.Theta = s.positive("rope_theta", r.Theta)
	r.Type = s.text("rope_type", s.text("type", ""))
	if r.Type == "" {
		for _, nested := range []string{"full_attention", "sliding_attention"} {
			if s.has(nested) {
				f.fail(ErrUnsupported, "rope_parameters", "a set for each layer type is not implemented")
			}
		}
		if !f.has("rope_parameters") { // there the type may be left out
			s.fail(ErrConfig, "rope_type", "missing")
		}
		r.Type = "default"
	}
	if s.has("mrope_section") {
		s.fail(ErrUnsupported, "mrope_section", "positions in several dimensions are not implemented")
	}
	switch r.Type {
	case "default":
	case "linear":
		r.Factor = s.positive("factor", 0)
	case "llama3":
		r.Factor = s.positive("factor", 0)
		r.LowFreqFactor = s.positive("low_freq_factor", 0)
		r.HighFreqFactor = s.positive("high_freq_factor", 0)
		r.OriginalContext = s.size("original_max_position_embeddings", 0, maxContext)
		if *s.err == nil && r.HighFreqFactor <= r.LowFreqFactor {
			s.fail(ErrConfig, "high_freq_factor", "%v is not above low_freq_factor %v", r.HighFreqFactor, r.LowFreqFactor)
		}
	case "yarn":
		r.readYarn(s, context)
	default:
		s.fail(ErrUnsupported, "rope_type", "%q is unknown; known are %s", r.Type, strings.Join(ropeTypes(), ", "))
	}
	return r
}

func (r *RoPE) readYarn(s fields, context int) {
	r.Factor = s.positive("factor", 0)
	r.OriginalContext = s.size("original_max_position_embeddings", context, maxContext)
	r.BetaFast = s.positive("beta_fast", 32)
	r.BetaSlow = s.positive("beta_slow", 1)
	r.Truncate = s.boolean("truncate", true)
	mscale := func(scale float64) float64 {
		if r.Factor <= 1 {
			return 1
		}
		return 0.1*scale*math.Log(r.Factor) + 1
	}
	r.Attention = mscale(1)
	if one, all := s.number("mscale", 0), s.number("mscale_all_dim", 0); one != 0 && all != 0 {
		r.Attention = mscale(one) / mscale(all)
	}
	if s.has("attention_factor") {
		r.Attention = s.positive("attention_factor", 0)
	}
}

// context is the number of positions that the scaled rotation serves. Only yarn
// is added to finished models without raising max_position_embeddings.
func (r RoPE) context(declared int) int {
	if r.Type != "yarn" {
		return declared
	}
	return max(declared, int(min(r.Factor*float64(r.OriginalContext), maxContext)))
}

// InvFreq gives the angle per position for each of the headDim/2 pairs. The
// formulas and their float32 roundings are those of transformers'
// modeling_rope_utils.
func (r RoPE) InvFreq(headDim int) []float32 {
	freqs := make([]float32, headDim/2)
	for i := range freqs {
		exponent := float32(2*i) / float32(headDim)
		freqs[i] = 1 / float32(math.Pow(r.Theta, float64(exponent)))
	}
	switch r.Type {
	case "linear":
		for i := range freqs {
			freqs[i] /= float32(r.Factor)
		}
	case "llama3":
		r.scaleLlama3(freqs)
	case "yarn":
		r.scaleYarn(freqs, headDim)
	}
	return freqs
}

// scaleLlama3 slows the low frequencies, leaves the high ones, and blends those
// between.
func (r RoPE) scaleLlama3(freqs []float32) {
	context := float64(r.OriginalContext)
	for i, f := range freqs {
		wavelength := 2 * math.Pi / float64(f)
		switch {
		case wavelength < context/r.HighFreqFactor:
		case wavelength > context/r.LowFreqFactor:
			freqs[i] = f / float32(r.Factor)
		default:
			smooth := (context/wavelength - r.LowFreqFactor) / (r.HighFreqFactor - r.LowFreqFactor)
			freqs[i] = float32((1-smooth)*float64(f)/r.Factor + smooth*float64(f))
		}
	}
}

// scaleYarn blends slowed and plain frequencies by a ramp over the dimensions.
func (r RoPE) scaleYarn(freqs []float32, headDim int) {
	dim := func(rotations float64) float64 {
		return float64(headDim) * math.Log(float64(r.OriginalContext)/(rotations*2*math.Pi)) / (2 * math.Log(r.Theta))
	}
	low, high := dim(r.BetaFast), dim(r.BetaSlow)
	if r.Truncate {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, float64(headDim-1))
	if low == high {
		high += 0.001 // as the reference does, against a division by zero
	}
	for i, f := range freqs {
		ramp := min(max((float64(i)-low)/(high-low), 0), 1)
		freqs[i] = float32(float64(f)/r.Factor*ramp + float64(f)*(1-ramp))
	}
}
