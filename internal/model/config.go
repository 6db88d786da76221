package model

import (
	"cmp"
	"math"
	"slices"
)

// Config is a model's shape, in the same form for all families. The model is a decoder of
// Layers blocks, each RMS norm, attention, residual, RMS norm, gated MLP or experts,
// residual, with rotary positions, and a final norm and head. The zero value of every
// field below DType gives a plain Llama.
type Config struct {
	Family       string // model_type of the family
	Architecture string // as config.json spells it
	Layers       int
	Hidden       int
	Heads        int // query heads
	KVHeads      int // divides Heads
	HeadDim      int // even
	FFN          int // inner size of the MLP of a layer without experts
	Vocab        int // rows of embedding and head; may exceed what the tokenizer knows
	MaxContext   int // positions
	NormEps      float64
	RoPE         RoPE
	// TiedHead: the head is the embedding.
	TiedHead bool
	// QKNorm: queries and keys pass an RMS norm per head before the rotation.
	QKNorm bool
	// QKVBias, OutBias and MLPBias: these linear layers add a bias.
	QKVBias, OutBias, MLPBias bool
	// DType is the declared type of the weights ("bfloat16"), or "" if the file does not
	// say. It is informative only: each tensor has its own type.
	DType string

	// Act is the activation of gated MLPs; "" means [SiLU].
	Act Activation
	// LocalRoPE replaces RoPE in layers with a window; nil if RoPE serves all layers.
	LocalRoPE *RoPE
	// RotaryDim is the number of leading values of each head that are rotated; 0 means
	// all.
	RotaryDim int
	// Window is the number of positions that a layer of Windowed attends to, its own
	// included; 0 means that all layers attend to all. Windowed has an entry for each
	// layer, or is nil.
	Window   int
	Windowed []bool
	// QueryScalar: scores are multiplied by its power of -½; 0 means the head dim.
	QueryScalar float64
	// ScoreCap and LogitCap limit scores (before the mask) and logits softly, by cap ×
	// tanh(x / cap); 0 means no limit.
	ScoreCap, LogitCap float64
	// NormPlusOne: norms multiply by 1 + weight.
	NormPlusOne bool
	// PostNorms: attention and MLP outputs pass a norm before they join the residual.
	PostNorms bool
	// ScaleEmbed: embeddings are multiplied by √Hidden, rounded to the type of the
	// embedding.
	ScaleEmbed bool
	MoE        MoE
	FP8        FP8
	// Vision is the part that reads images; nil for a model of text alone.
	Vision *Vision
}

// MoE describes layers with experts. A router scores all experts for each token. The
// outputs of the best ones are added up, weighted by their share of the softmax over all.
type MoE struct {
	Experts   int // in each such layer; 0: there are no such layers
	Active    int // chosen for each token
	FFN       int // inner size of one expert
	Normalize bool
	// Sparse has an entry for each layer: true if it has experts in place of an MLP.
	Sparse []bool
}

// Activation is the nonlinear function of MLPs.
type Activation string

// Activations that engines compute, as config.json spells them. Gated MLPs have the first
// two, and towers for images all but the first.
const (
	SiLU      Activation = "silu"              // x × logistic(x)
	GELUTanh  Activation = "gelu_pytorch_tanh" // ½x(1 + tanh(√(2/π)(x + 0.044715x³)))
	GELU      Activation = "gelu"              // ½x(1 + erf(x / √2))
	QuickGELU Activation = "quick_gelu"        // x × logistic(1.702x)
)

// WindowOf returns how many positions a layer attends to, its own included; 0 for all.
func (c Config) WindowOf(layer int) int {
	if c.Windowed != nil && c.Windowed[layer] {
		return c.Window
	}
	return 0
}

// Sparse reports whether a layer has experts.
func (c Config) Sparse(layer int) bool { return c.MoE.Sparse != nil && c.MoE.Sparse[layer] }

// Rotary returns the number of leading values of a head that are rotated.
func (c Config) Rotary() int { return cmp.Or(c.RotaryDim, c.HeadDim) }

// ScoreScale returns the factor of attention scores.
func (c Config) ScoreScale() float64 {
	return 1 / math.Sqrt(cmp.Or(c.QueryScalar, float64(c.HeadDim)))
}

// Limits of sizes. They are far above any model and keep products of two or three sizes
// from overflowing.
const (
	maxLayers  = 1 << 12
	maxWidth   = 1 << 20
	maxHeads   = 1 << 12
	maxVocab   = 1 << 24
	maxContext = 1 << 30
)

// ParseConfig reads the content of a config.json, in the spelling of transformers 4
// (torch_dtype, rope_theta and rope_scaling) or 5 (dtype, rope_parameters). Errors match
// [ErrConfig] or [ErrUnsupported] and name the field.
func ParseConfig(content []byte) (Config, error) {
	f, err := parseFields("config.json", content)
	if err != nil {
		return Config{}, err
	}
	fam, architecture, err := findFamily(f)
	if err != nil {
		return Config{}, err
	}
	outer := f
	if fam.nested {
		f = f.descend("text_config")
		fam = fam.text(f)
	}
	d := fam.defaults
	c := Config{
		Family:       fam.modelType,
		Architecture: architecture,
		Layers:       f.size("num_hidden_layers", d.layers, maxLayers),
		Hidden:       f.size("hidden_size", d.hidden, maxWidth),
		Heads:        f.size("num_attention_heads", d.heads, maxHeads),
		FFN:          f.size("intermediate_size", d.ffn, maxWidth),
		Vocab:        f.size("vocab_size", d.vocab, maxVocab),
		MaxContext:   f.size("max_position_embeddings", d.context, maxContext),
		NormEps:      f.positive("rms_norm_eps", d.normEps),
		TiedHead:     f.boolean("tie_word_embeddings", d.tied),
		DType:        f.text("dtype", f.text("torch_dtype", "")),
		FP8:          readFP8(f),
	}
	if *f.err != nil {
		readActivation(f, fam) // so that all errors are reported at once
		refuseUnsupported(f, c)
		return Config{}, *f.err
	}
	c.KVHeads = f.size("num_key_value_heads", cmp.Or(d.kvHeads, c.Heads), maxHeads)
	c.HeadDim = readHeadDim(f, c, d.headDim)
	c.Act = readActivation(f, fam)
	fam.traits(f, &c)
	refuseUnsupported(f, c)
	if *f.err != nil {
		return Config{}, *f.err
	}
	readRoPE(f, &c, d.ropeTheta)
	readSections(f, &c, fam.grids)
	if c.Heads%c.KVHeads != 0 {
		f.fail(ErrConfig, "num_key_value_heads", "%d does not divide %d attention heads", c.KVHeads, c.Heads)
	}
	if c.HeadDim%2 != 0 {
		f.fail(ErrConfig, "head_dim", "%d is odd, rotary positions need pairs", c.HeadDim)
	}
	c.MaxContext = c.RoPE.context(c.MaxContext)
	if fam.vision != nil {
		c.Vision = fam.vision.read(outer, &c)
	}
	return c, *f.err
}

func readHeadDim(f fields, c Config, def int) int {
	if def != 0 || f.has("head_dim") {
		return f.size("head_dim", def, maxWidth)
	}
	if c.Hidden%c.Heads != 0 {
		f.fail(ErrConfig, "head_dim", "missing, and hidden_size %d is not a multiple of %d heads", c.Hidden, c.Heads)
		return 0
	}
	return c.Hidden / c.Heads
}

// readActivation reads the activation. SiLU stays the zero value.
func readActivation(f fields, fam family) Activation {
	field := cmp.Or(fam.actField, "hidden_act")
	switch act := f.text(field, string(cmp.Or(fam.defaults.act, SiLU))); act {
	case "silu", "swish":
		return ""
	case string(GELUTanh):
		return GELUTanh
	default:
		f.fail(ErrUnsupported, field, "%q is unknown; known are %s, %s", act, SiLU, GELUTanh)
		return ""
	}
}

// refuseUnsupported refuses settings that change the arithmetic in a way that the engines
// do not implement. Ignoring them would give wrong text without an error. It skips
// settings that the family's traits have read.
func refuseUnsupported(f fields, c Config) {
	if c.Windowed == nil && slices.ContainsFunc(f.texts("layer_types"), func(t string) bool { return t != fullAttention }) {
		f.fail(ErrUnsupported, "layer_types", "layers of %s attend to all earlier tokens", c.Family)
	}
	if part := f.number("partial_rotary_factor", 1); part != 1 && c.RotaryDim == 0 {
		f.fail(ErrUnsupported, "partial_rotary_factor", "%v: %s rotates whole heads", part, c.Family)
	}
}
