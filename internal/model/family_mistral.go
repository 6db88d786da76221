package model

// mistral covers Mistral 7B, Nemo and Small. They are Llamas that may have a
// window in all layers: 4096 positions when the field is left out, none when it is
// null, as it is since version 0.2.
func mistral() family {
	return family{
		modelType:     "mistral",
		architectures: []string{"MistralForCausalLM"},
		defaults:      defaults{context: 131072, kvHeads: 8, normEps: 1e-6, ropeTheta: 1e4},
		traits: func(f fields, c *Config) {
			readWindow(f, c, f.window("sliding_window", 4096), allLayers)
		},
		names: llamaNames(),
	}
}
