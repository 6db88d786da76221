package model

// llama covers Llama 2, 3, 3.1 and 3.2 text models and the many models that use their
// code.
func llama() family {
	return family{
		modelType:     "llama",
		architectures: []string{"LlamaForCausalLM"},
		defaults:      defaults{context: 2048, normEps: 1e-6, ropeTheta: 1e4},
		traits: func(f fields, c *Config) {
			c.QKVBias = f.boolean("attention_bias", false)
			c.OutBias = c.QKVBias
			c.MLPBias = f.boolean("mlp_bias", false)
			f.refuse("use_sliding_window", "layers of llama attend to all earlier tokens")
		},
		names: llamaNames(),
		// Written by old versions of transformers; computed from rope_theta.
		ignored: []string{"model.layers.%d.self_attn.rotary_emb.inv_freq"},
	}
}
