package model

// gemma3 covers the text part of Gemma 3, alone or inside a checkpoint that also reads
// images, whose other tensors are ignored. Unlike Gemma 2 it has norms on queries and
// keys, no caps unless the file sets them, and one layer in six without a window. Layers
// with a window rotate by their own base, which rope_scaling does not scale.
func gemma3() family {
	return family{
		modelType:     "gemma3_text",
		architectures: []string{"Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"},
		defaults: defaults{
			context: 131072, headDim: 256, kvHeads: 4, normEps: 1e-6, ropeTheta: 1e6, tied: true, act: GELUTanh,
			layers: 26, hidden: 2304, heads: 8, ffn: 9216, vocab: 262208,
		},
		actField: "hidden_activation",
		nested:   true,
		traits: func(f fields, c *Config) {
			readGemma(f, c)
			c.QKNorm = true
			c.ScoreCap = f.limit("attn_logit_softcapping", 0)
			c.LogitCap = f.limit("final_logit_softcapping", 0)
			c.LocalRoPE = &RoPE{Theta: f.positive("rope_local_base_freq", 1e4), Type: "default", Attention: 1}
			pattern := f.size("sliding_window_pattern", 6, maxLayers)
			readWindow(f, c, f.window("sliding_window", 4096), func(layer int) bool { return (layer+1)%pattern != 0 })
		},
		names: gemmaNames(),
		roots: []string{"model.", "language_model.model.", "model.language_model."},
	}
}
