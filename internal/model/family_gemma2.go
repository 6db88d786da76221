package model

// gemma2 covers Gemma 2. Norms multiply by 1 + weight and are before and after attention
// and MLP. Scores and logits are capped; null turns a cap off. Layers 0, 2, 4… have a
// window. Embeddings are scaled.
func gemma2() family {
	return family{
		modelType:     "gemma2",
		architectures: []string{"Gemma2ForCausalLM"},
		defaults: defaults{
			context: 8192, headDim: 256, kvHeads: 4, normEps: 1e-6, ropeTheta: 1e4, tied: true, act: GELUTanh,
		},
		actField: "hidden_activation",
		traits: func(f fields, c *Config) {
			readGemma(f, c)
			c.ScoreCap = f.limit("attn_logit_softcapping", 50)
			c.LogitCap = f.limit("final_logit_softcapping", 30)
			readWindow(f, c, f.window("sliding_window", 4096), func(layer int) bool { return layer%2 == 0 })
		},
		names: gemmaNames(),
	}
}

// readGemma reads the fields that Gemma 2 and 3 share.
func readGemma(f fields, c *Config) {
	c.NormPlusOne, c.PostNorms, c.ScaleEmbed = true, true, true
	c.QKVBias = f.boolean("attention_bias", false)
	c.OutBias = c.QKVBias
	c.QueryScalar = f.positive("query_pre_attn_scalar", 256)
	f.refuse("use_bidirectional_attention", "tokens attend to earlier tokens only")
}
