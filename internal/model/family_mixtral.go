package model

// mixtral covers Mixtral: a Mistral with experts in every layer. The shares of the
// chosen experts always add up to one. In an expert w1 is the gate, w3 up and w2
// down; intermediate_size is that of one expert.
func mixtral() family {
	return family{
		modelType:     "mixtral",
		architectures: []string{"MixtralForCausalLM"},
		defaults:      defaults{context: 131072, kvHeads: 8, normEps: 1e-5, ropeTheta: 1e6},
		traits: func(f fields, c *Config) {
			readWindow(f, c, f.window("sliding_window", 0), allLayers)
			readExperts(f, c, MoE{
				Experts:   f.size("num_local_experts", 8, maxExperts),
				Active:    f.size("num_experts_per_tok", 2, maxExperts),
				FFN:       c.FFN,
				Normalize: true,
			}, allLayers)
		},
		names: withNames(llamaNames(), map[Role]string{
			RoleRouter:     "model.layers.%d.block_sparse_moe.gate.weight",
			RoleExpertGate: "model.layers.%d.block_sparse_moe.experts.%d.w1.weight",
			RoleExpertUp:   "model.layers.%d.block_sparse_moe.experts.%d.w3.weight",
			RoleExpertDown: "model.layers.%d.block_sparse_moe.experts.%d.w2.weight",
		}),
		fused: []fused{
			{"model.layers.%d.block_sparse_moe.experts.gate_up_proj", []Role{RoleExpertGate, RoleExpertUp}},
			{"model.layers.%d.block_sparse_moe.experts.down_proj", []Role{RoleExpertDown}},
		},
	}
}
