package model

// qwen2 covers the dense Qwen2 and Qwen2.5 models. Queries, keys and values have a bias,
// although config.json does not say so, and the output has none.
func qwen2() family {
	return family{
		modelType:     "qwen2",
		architectures: []string{"Qwen2ForCausalLM"},
		defaults:      defaults{context: 32768, normEps: 1e-6, ropeTheta: 1e4},
		traits: func(f fields, c *Config) {
			c.QKVBias = true
			readQwenWindow(f, c, 28)
		},
		names: llamaNames(),
	}
}

// readQwenWindow reads the window. It applies to the layers from max_window_layers on,
// the reverse of what the name suggests; the default depends on the family. Without use_sliding_window the size is ignored.
func readQwenWindow(f fields, c *Config, maxWindowLayers int) {
	window := f.window("sliding_window", 4096)
	full := f.count("max_window_layers", maxWindowLayers, maxLayers)
	if !f.boolean("use_sliding_window", false) {
		window = 0
	}
	readWindow(f, c, window, func(layer int) bool { return layer >= full })
}
