package model

import (
	"cmp"
	"math"
	"slices"
)

// Config is a model's shape, the same for all families: a decoder of Layers
// blocks, each RMS norm, attention, residual, RMS norm, gated MLP or experts,
// residual, with rotary positions, and a final norm and head. The zero value of
// every field below DType is what a plain Llama does.
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
	// DType is the declared type of the weights ("bfloat16"), "" when the file
	// does not say. Each tensor has its own type; this one decides nothing.
	DType string

	// Act is the activation of gated MLPs; "" stands for [SiLU].
	Act Activation
	// LocalRoPE replaces RoPE in layers with a window; nil: RoPE serves all.
	LocalRoPE *RoPE
	// RotaryDim is how many leading values of each head are rotated; 0: all.
	RotaryDim int
	// Window is how many positions a layer of Windowed sees, its own included; 0:
	// all layers see everything. Windowed has an entry for each layer, or is nil.
	Window   int
	Windowed []bool
	// QueryScalar: scores are multiplied with its power of -½; 0: head dim.
	QueryScalar float64
	// ScoreCap and LogitCap bend scores (before the mask) and logits by
	// cap × tanh(x / cap); 0: they do not.
	ScoreCap, LogitCap float64
	// NormPlusOne: norms multiply with 1 + weight.
	NormPlusOne bool
	// PostNorms: attention and MLP pass a norm before they join the residual.
	PostNorms bool
	// ScaleEmbed: embeddings are multiplied with √Hidden, a factor that is rounded
	// to the type of the embedding first.
	ScaleEmbed bool
	MoE        MoE
	FP8        FP8
}

// MoE describes layers with experts: a router scores all of them for each token,
// and the best ones' outputs are added up by their share of the softmax over all.
type MoE struct {
	Experts   int // in each such layer; 0: there are no such layers
	Active    int // chosen for each token
	FFN       int // inner size of one expert
	Normalize bool
	// Sparse has an entry for each layer: does it have experts in place of an MLP.
	Sparse []bool
}

// Activation is the nonlinear function of gated MLPs.
type Activation string

// The activations that engines compute, as config.json spells them.
const (
	SiLU     Activation = "silu"              // x × logistic(x)
	GELUTanh Activation = "gelu_pytorch_tanh" // ½x(1 + tanh(√(2/π)(x + 0.044715x³)))
)

// WindowOf is how many positions a layer sees, its own included; 0: all.
func (c Config) WindowOf(layer int) int {
	if c.Windowed != nil && c.Windowed[layer] {
		return c.Window
	}
	return 0
}

// Sparse reports whether a layer has experts.
func (c Config) Sparse(layer int) bool { return c.MoE.Sparse != nil && c.MoE.Sparse[layer] }

// Rotary is the number of leading values of a head that are rotated.
func (c Config) Rotary() int { return cmp.Or(c.RotaryDim, c.HeadDim) }

// ScoreScale is what attention scores are multiplied with.
func (c Config) ScoreScale() float64 {
	return 1 / math.Sqrt(cmp.Or(c.QueryScalar, float64(c.HeadDim)))
}

// Limits on sizes. They are far above any model and keep products of two or
// three of them from overflowing.
const (
	maxLayers  = 1 << 12
	maxWidth   = 1 << 20
	maxHeads   = 1 << 12
	maxVocab   = 1 << 24
	maxContext = 1 << 30
)

// ParseConfig reads the content of a config.json. Both the spellings of
// transformers 4 (torch_dtype, rope_theta and rope_scaling) and 5 (dtype,
// rope_parameters) are understood. Errors match [ErrConfig] or [ErrUnsupported]
// and name the field.
func ParseConfig(content []byte) (Config, error) {
	f, err := parseFields("config.json", content)
	if err != nil {
		return Config{}, err
	}
	fam, architecture, err := findFamily(f)
	if err != nil {
		return Config{}, err
	}
	if fam.nested {
		f = f.descend("text_config")
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
		readActivation(f, fam) // to tell everything at once
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
	if c.Heads%c.KVHeads != 0 {
		f.fail(ErrConfig, "num_key_value_heads", "%d does not divide %d attention heads", c.KVHeads, c.Heads)
	}
	if c.HeadDim%2 != 0 {
		f.fail(ErrConfig, "head_dim", "%d is odd, rotary positions need pairs", c.HeadDim)
	}
	c.MaxContext = c.RoPE.context(c.MaxContext)
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

// readActivation reads the activation; SiLU is left as the zero value.
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

// refuseUnsupported names what would change the arithmetic in a way that the
// engines do not follow. Passing over it would give wrong text without an error.
// What a family's traits have read is left to them.
func refuseUnsupported(f fields, c Config) {
	if c.Windowed == nil && slices.ContainsFunc(f.texts("layer_types"), func(t string) bool { return t != fullAttention }) {
		f.fail(ErrUnsupported, "layer_types", "layers of %s see everything", c.Family)
	}
	if part := f.number("partial_rotary_factor", 1); part != 1 && c.RotaryDim == 0 {
		f.fail(ErrUnsupported, "partial_rotary_factor", "%v: %s rotates whole heads", part, c.Family)
	}
}
