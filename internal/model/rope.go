package model

import (
	"math"
	"slices"
	"strings"
)

// RoPE holds the rotary position settings.
type RoPE struct {
	Theta float64
	// Type is "default", "linear", "llama3", "yarn" or "longrope". The fields below are
	// for the scaled types.
	Type            string
	Factor          float64
	OriginalContext int     // llama3, yarn, longrope: positions of the original training
	LowFreqFactor   float64 // llama3
	HighFreqFactor  float64 // llama3
	BetaFast        float64 // yarn
	BetaSlow        float64 // yarn
	Truncate        bool    // yarn: round the ends of the ramp to whole dimensions
	// Attention multiplies cosines and sines; 1 except for yarn and longrope.
	Attention float64
	// ShortFactors and LongFactors divide the frequencies of longrope, one for each pair.
	// The former serve up to OriginalContext positions, the latter more.
	ShortFactors, LongFactors []float64
	// Sections are the numbers of pairs that turn by each of three positions: time, height and
	// width of the rows of images. Together they are all pairs; zero if a token has one
	// position.
	Sections [3]int
}

// ropeTypes returns the types that readScaling supports. "dynamic" is not among them: it
// changes all angles with each new token, but cached keys keep the old ones.
func ropeTypes() []string { return []string{"default", "linear", "llama3", "yarn", "longrope"} }

// readRoPE reads rope_theta and rope_scaling, or rope_parameters, which holds both and
// takes precedence. rope_parameters may hold a set for each type of layer.
func readRoPE(f fields, c *Config, defaultTheta float64) {
	c.RoPE = RoPE{Theta: f.positive("rope_theta", defaultTheta), Type: "default", Attention: 1}
	s, there := f.object("rope_parameters")
	if !there {
		if s, there = f.object("rope_scaling"); there && *f.err == nil {
			c.RoPE.readScaling(s, f, c, true)
		}
		return
	}
	if *f.err != nil {
		return
	}
	if !s.has(fullAttention) && !s.has(slidingAttention) {
		c.RoPE.readScaling(s, f, c, false)
		return
	}
	if c.LocalRoPE == nil {
		f.fail(ErrUnsupported, "rope_parameters", "a set for each layer type: all layers of %s rotate alike", c.Family)
		return
	}
	for name, r := range map[string]*RoPE{fullAttention: &c.RoPE, slidingAttention: c.LocalRoPE} {
		if set, ok := s.object(name); ok && *f.err == nil {
			r.readScaling(set, f, c, false)
		}
	}
}

// readScaling reads a set of rope settings; f is the whole file. typed reports that the
// type is required.
func (r *RoPE) readScaling(s, f fields, c *Config, typed bool) {
	r.Theta = s.positive("rope_theta", r.Theta)
	r.Type = s.text("rope_type", s.text("type", ""))
	if r.Type == "" {
		if typed {
			s.fail(ErrConfig, "rope_type", "missing")
		}
		r.Type = "default"
	}
	if r.Type == "mrope" && s.has("mrope_section") {
		r.Type = "default" // what readSections reads says more
	}
	if r.Type == "su" || r.Type == "yarn" && s.has("short_factor") {
		r.Type = "longrope" // early names of it
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
		r.readYarn(s, c.MaxContext)
	case "longrope":
		r.readLong(s, f, c)
	default:
		s.fail(ErrUnsupported, "rope_type", "%q is unknown; known are %s", r.Type, strings.Join(ropeTypes(), ", "))
	}
}

// readSections reads how many pairs turn by each of three positions, which only families with
// such positions may and must have.
func readSections(f fields, c *Config, wanted bool) {
	s, there := f.object("rope_parameters")
	if !there {
		s, _ = f.object("rope_scaling")
	}
	var sections []int
	switch {
	case !s.has("mrope_section") && wanted:
		s.fail(ErrConfig, "mrope_section", "missing")
	case !s.has("mrope_section"):
	case !wanted:
		s.fail(ErrUnsupported, "mrope_section", "tokens of %s have one position", c.Family)
	case s.decode("mrope_section", &sections, "three numbers"):
		if len(sections) != len(c.RoPE.Sections) || slices.Min(sections) < 0 || max(sections[0], sections[1], sections[2]) > c.Rotary() ||
			sections[0]+sections[1]+sections[2] != c.Rotary()/2 {
			s.fail(ErrConfig, "mrope_section", "%v, want three numbers with a sum of %d pairs", sections, c.Rotary()/2)
			return
		}
		copy(c.RoPE.Sections[:], sections)
	}
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

// readLong reads longrope. The stretch of the context follows from the positions of the
// original training, which Phi-3 has at the top of the file. Only without them the factor
// is required.
func (r *RoPE) readLong(s, f fields, c *Config) {
	pairs := c.Rotary() / 2
	r.ShortFactors, r.LongFactors = s.factors("short_factor", pairs), s.factors("long_factor", pairs)
	r.OriginalContext = s.size("original_max_position_embeddings",
		f.size("original_max_position_embeddings", c.MaxContext, maxContext), maxContext)
	r.Factor = float64(c.MaxContext) / float64(r.OriginalContext)
	if !s.has("original_max_position_embeddings") && !f.has("original_max_position_embeddings") {
		r.Factor = s.positive("factor", 0)
	}
	if r.Factor > 1 && r.OriginalContext > 1 {
		r.Attention = math.Sqrt(1 + math.Log(r.Factor)/math.Log(float64(r.OriginalContext)))
	}
	if s.has("attention_factor") {
		r.Attention = s.positive("attention_factor", 0)
	}
}

// context returns the number of positions that the scaled rotation serves. For yarn and
// longrope it can exceed max_position_embeddings, because these are added to finished
// models without raising that field.
func (r RoPE) context(declared int) int {
	if r.Type != "yarn" && r.Type != "longrope" {
		return declared
	}
	return max(declared, int(min(r.Factor*float64(r.OriginalContext), maxContext)))
}

// InvFreq returns the angle per position for each of the dim/2 pairs of the rotated part
// of a head. The formulas and their float32 roundings are those of transformers'
// modeling_rope_utils.
//
// maxContext is the largest number of positions that will be served. It selects one of
// the two tables of longrope. The length of a single sequence cannot, because keys cached
// with one table do not fit queries of the other.
func (r RoPE) InvFreq(dim, maxContext int) []float32 {
	freqs := make([]float32, dim/2)
	for i := range freqs {
		exponent := float32(2*i) / float32(dim)
		freqs[i] = 1 / float32(math.Pow(r.Theta, float64(exponent)))
	}
	switch r.Type {
	case "longrope":
		r.scaleLong(freqs, maxContext)
	case "linear":
		for i := range freqs {
			freqs[i] /= float32(r.Factor)
		}
	case "llama3":
		r.scaleLlama3(freqs)
	case "yarn":
		r.scaleYarn(freqs, dim)
	}
	return freqs
}

// scaleLong divides each frequency by its own factor.
func (r RoPE) scaleLong(freqs []float32, maxContext int) {
	factors := r.LongFactors
	if maxContext <= r.OriginalContext {
		factors = r.ShortFactors
	}
	for i := range freqs {
		freqs[i] /= float32(factors[i])
	}
}

// scaleLlama3 slows the low frequencies, keeps the high ones, and blends those between.
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
		high += 0.001 // as the reference does, to avoid a division by zero
	}
	for i, f := range freqs {
		ramp := min(max((float64(i)-low)/(high-low), 0), 1)
		freqs[i] = float32(float64(f)/r.Factor*ramp + float64(f)*(1-ramp))
	}
}
