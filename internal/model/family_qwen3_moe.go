package model

import "slices"

// qwen3MoE covers Qwen3 models with experts, without a shared one. Layer i has experts if
// decoder_sparse_step divides i+1 and mlp_only_layers does not list it. A window applies
// to all layers: max_window_layers is for the dense models only.
func qwen3MoE() family {
	return family{
		modelType:     "qwen3_moe",
		architectures: []string{"Qwen3MoeForCausalLM"},
		defaults:      defaults{context: 32768, kvHeads: 4, normEps: 1e-6, ropeTheta: 1e4},
		traits: func(f fields, c *Config) {
			readQwen3Attention(f, c)
			window := f.window("sliding_window", 4096)
			if !f.boolean("use_sliding_window", false) {
				window = 0
			}
			readWindow(f, c, window, allLayers)
			step := f.size("decoder_sparse_step", 1, maxLayers)
			dense := f.layers("mlp_only_layers")
			readExperts(f, c, MoE{
				Experts:   f.size("num_experts", 128, maxExperts),
				Active:    f.size("num_experts_per_tok", 8, maxExperts),
				FFN:       f.size("moe_intermediate_size", 768, maxWidth),
				Normalize: f.boolean("norm_topk_prob", false),
			}, func(layer int) bool { return (layer+1)%step == 0 && !slices.Contains(dense, layer) })
		},
		names: withNames(llamaNames(), map[Role]string{
			RoleRouter:     "model.layers.%d.mlp.gate.weight",
			RoleExpertGate: "model.layers.%d.mlp.experts.%d.gate_proj.weight",
			RoleExpertUp:   "model.layers.%d.mlp.experts.%d.up_proj.weight",
			RoleExpertDown: "model.layers.%d.mlp.experts.%d.down_proj.weight",
		}),
		fused: []fused{
			{"model.layers.%d.mlp.experts.gate_up_proj", []Role{RoleExpertGate, RoleExpertUp}},
			{"model.layers.%d.mlp.experts.down_proj", []Role{RoleExpertDown}},
		},
	}
}
