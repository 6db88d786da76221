package model

// qwen3 covers the dense Qwen3 models. They differ from Llama by an RMS norm per
// head on queries and keys, and by a head size that is not hidden size / heads.
func qwen3() family {
	return family{
		modelType:     "qwen3",
		architectures: []string{"Qwen3ForCausalLM"},
		defaults:      defaults{context: 32768, headDim: 128, normEps: 1e-6, ropeTheta: 1e4},
		traits: func(f fields, c *Config) {
			readQwen3Attention(f, c)
			readQwenWindow(f, c, 28)
		},
		names: llamaNames(),
	}
}

func readQwen3Attention(f fields, c *Config) {
	c.QKNorm = true
	c.QKVBias = f.boolean("attention_bias", false)
	c.OutBias = c.QKVBias
}
