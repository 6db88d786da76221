package model

import (
	"slices"
)

// Config is a model's shape, the same for all families: a decoder of Layers
// blocks, each RMS norm, attention, residual, RMS norm, SwiGLU, residual, with
// rotary positions, and a final norm and head.
type Config struct {
	Family       string // model_type of the family
	Architecture string // as config.json spells it
	Layers       int
	Hidden       int
	Heads        int // query heads
	KVHeads      int // divides Heads
	HeadDim      int // even
	FFN          int // inner size of the MLP
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
	c := Config{
		Family:       fam.modelType,
		Architecture: architecture,
		Layers:       f.size("num_hidden_layers", 0, maxLayers),
		Hidden:       f.size("hidden_size", 0, maxWidth),
		Heads:        f.size("num_attention_heads", 0, maxHeads),
		FFN:          f.size("intermediate_size", 0, maxWidth),
		Vocab:        f.size("vocab_size", 0, maxVocab),
		MaxContext:   f.size("max_position_embeddings", fam.defaults.context, maxContext),
		NormEps:      f.positive("rms_norm_eps", fam.defaults.normEps),
		TiedHead:     f.boolean("tie_word_embeddings", false),
		DType:        f.text("dtype", f.text("torch_dtype", "")),
	}
	if *f.err != nil {
		refuseUnsupported(f) // to tell everything at once
		return Config{}, *f.err
	}
	c.KVHeads = f.size("num_key_value_heads", c.Heads, maxHeads)
	c.HeadDim = readHeadDim(f, c, fam.defaults.headDim)
	fam.traits(f, &c)
	refuseUnsupported(f)
	if *f.err != nil {
		return Config{}, *f.err
	}
	c.RoPE = readRoPE(f, fam.defaults.ropeTheta, c.MaxContext)
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

// refuseUnsupported names what would change the arithmetic in a way that the
// engines do not follow. Passing over it would give wrong text without an error.
func refuseUnsupported(f fields) {
	if act := f.text("hidden_act", "silu"); act != "silu" && act != "swish" {
		f.fail(ErrUnsupported, "hidden_act", "%q is unknown; known is silu", act)
	}
	if f.boolean("use_sliding_window", false) {
		f.fail(ErrUnsupported, "use_sliding_window", "sliding windows are not implemented")
	}
	if types := f.texts("layer_types"); slices.ContainsFunc(types, func(t string) bool { return t != "full_attention" }) {
		f.fail(ErrUnsupported, "layer_types", "only full_attention is implemented")
	}
	if part := f.number("partial_rotary_factor", 1); part != 1 {
		f.fail(ErrUnsupported, "partial_rotary_factor", "%v: only 1 is implemented", part)
	}
	if q, ok := f.object("quantization_config"); ok {
		f.fail(ErrUnsupported, "quantization_config", "quant_method %q is unknown", q.text("quant_method", ""))
	}
}
