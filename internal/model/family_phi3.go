package model

// phi3 covers Phi-3, 3.5 and 4 with the code of Phi-3. Queries, keys and values
// come from one matrix, gate and up from another; later ones rotate only the first
// part of each head.
func phi3() family {
	return family{
		modelType:     "phi3",
		architectures: []string{"Phi3ForCausalLM"},
		defaults:      defaults{context: 4096, normEps: 1e-5, ropeTheta: 1e4},
		traits: func(f fields, c *Config) {
			readWindow(f, c, f.window("sliding_window", 0), allLayers)
			readPartialRotary(f, c)
		},
		names: without(llamaNames(), RoleQ, RoleK, RoleV, RoleGate, RoleUp),
		fused: []fused{
			{"model.layers.%d.self_attn.qkv_proj.weight", []Role{RoleQ, RoleK, RoleV}},
			{"model.layers.%d.mlp.gate_up_proj.weight", []Role{RoleGate, RoleUp}},
		},
	}
}
