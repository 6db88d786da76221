package ggufmodel

import "maps"

// arch describes an architecture of GGUF files as data.
type arch struct {
	name string // general.architecture, and the prefix of its keys
	// modelType and class are what config.json calls it.
	modelType, class string
	// withExperts: it is this one only if the file says how many experts there are.
	withExperts bool
	// fields are further fields of config.json and the keys that hold them.
	fields []field
	// fixed are fields that files of this architecture never say.
	fixed map[string]any
	// names maps tensors to their names in a Hugging Face folder: those of a layer
	// without their "blk.%d.", where the first %d of the result is the layer. A
	// second one is the expert, which is the first dimension in the file.
	names map[string]string
	// interleaved: rows of queries and keys are ordered for rotating neighbors,
	// rather than the two halves of a head.
	interleaved bool
	// plusOne: one was added to the weights of norms.
	plusOne bool
	// biased are the fields that say whether a tensor of the first layer is there.
	biased map[string]string
	// queryScalar: config.json has query_pre_attn_scalar. It is the size of a head,
	// except in models with this many layers: hidden size / heads.
	queryScalar int
}

// field is a field of config.json that a key holds.
type field struct {
	name     string
	key      string // without the prefix of the architecture
	fraction bool   // it need not be a whole number
	optional bool
}

// commonFields returns the fields of all architectures.
func commonFields() []field {
	return []field{
		{name: "num_hidden_layers", key: "block_count"},
		{name: "hidden_size", key: "embedding_length"},
		{name: "num_attention_heads", key: "attention.head_count"},
		{name: "num_key_value_heads", key: "attention.head_count_kv", optional: true},
		{name: "intermediate_size", key: "feed_forward_length"},
		{name: "max_position_embeddings", key: "context_length"},
		{name: "rms_norm_eps", key: "attention.layer_norm_rms_epsilon", fraction: true},
	}
}

// archs is the table of known architectures.
func archs() []arch {
	attentionBias := map[string]string{"attention_bias": "attn_q.bias"}
	experts := field{name: "num_experts_per_tok", key: "expert_used_count"}
	window := field{name: "sliding_window", key: "attention.sliding_window", optional: true}
	return []arch{
		{
			name: "llama", modelType: "mixtral", class: "MixtralForCausalLM", withExperts: true, interleaved: true,
			fields: []field{{name: "num_local_experts", key: "expert_count"}, experts},
			fixed:  map[string]any{"sliding_window": nil},
			names: with(llamaNames(), map[string]string{
				"ffn_gate_inp.weight":  "model.layers.%d.block_sparse_moe.gate.weight",
				"ffn_gate_exps.weight": "model.layers.%d.block_sparse_moe.experts.%d.w1.weight",
				"ffn_up_exps.weight":   "model.layers.%d.block_sparse_moe.experts.%d.w3.weight",
				"ffn_down_exps.weight": "model.layers.%d.block_sparse_moe.experts.%d.w2.weight",
			}),
		}, {
			name: "llama", modelType: "llama", class: "LlamaForCausalLM", interleaved: true,
			names:  llamaNames(),
			biased: map[string]string{"attention_bias": "attn_q.bias", "mlp_bias": "ffn_up.bias"},
		}, {
			name: "qwen2", modelType: "qwen2", class: "Qwen2ForCausalLM", names: llamaNames(),
		}, {
			// The three positions of a token are equal where there are no images.
			name: "qwen2vl", modelType: "qwen2", class: "Qwen2ForCausalLM", names: llamaNames(),
		}, {
			name: "qwen3", modelType: "qwen3", class: "Qwen3ForCausalLM", names: llamaNames(), biased: attentionBias,
		}, {
			name: "qwen3moe", modelType: "qwen3_moe", class: "Qwen3MoeForCausalLM", biased: attentionBias,
			fields: []field{{name: "num_experts", key: "expert_count"}, experts, {name: "moe_intermediate_size", key: "expert_feed_forward_length"}},
			fixed:  map[string]any{"norm_topk_prob": true, "decoder_sparse_step": 1},
			names: with(llamaNames(), map[string]string{
				"ffn_gate_inp.weight":  "model.layers.%d.mlp.gate.weight",
				"ffn_gate_exps.weight": "model.layers.%d.mlp.experts.%d.gate_proj.weight",
				"ffn_up_exps.weight":   "model.layers.%d.mlp.experts.%d.up_proj.weight",
				"ffn_down_exps.weight": "model.layers.%d.mlp.experts.%d.down_proj.weight",
			}),
		}, {
			name: "gemma2", modelType: "gemma2", class: "Gemma2ForCausalLM", plusOne: true, queryScalar: 46,
			fields: []field{
				window,
				{name: "attn_logit_softcapping", key: "attn_logit_softcapping", fraction: true, optional: true},
				{name: "final_logit_softcapping", key: "final_logit_softcapping", fraction: true, optional: true},
			},
			names: gemmaNames(),
		}, {
			name: "gemma3", modelType: "gemma3_text", class: "Gemma3ForCausalLM", plusOne: true, queryScalar: 62,
			fields: []field{
				window,
				{name: "final_logit_softcapping", key: "final_logit_softcapping", fraction: true, optional: true},
				{name: "rope_local_base_freq", key: "rope.freq_base_swa", fraction: true, optional: true},
			},
			names: gemmaNames(),
		}, {
			name: "phi3", modelType: "phi3", class: "Phi3ForCausalLM",
			fields: []field{window},
			names: with(llamaNames(), map[string]string{
				"attn_qkv.weight": "model.layers.%d.self_attn.qkv_proj.weight",
				"ffn_up.weight":   "model.layers.%d.mlp.gate_up_proj.weight",
			}),
		},
	}
}

// llamaNames are the tensor names that most architectures share.
func llamaNames() map[string]string {
	names := map[string]string{
		"token_embd.weight":  "model.embed_tokens.weight",
		"output_norm.weight": "model.norm.weight",
		"output.weight":      "lm_head.weight",

		"attn_norm.weight":   "model.layers.%d.input_layernorm.weight",
		"attn_q_norm.weight": "model.layers.%d.self_attn.q_norm.weight",
		"attn_k_norm.weight": "model.layers.%d.self_attn.k_norm.weight",
		"ffn_norm.weight":    "model.layers.%d.post_attention_layernorm.weight",
	}
	for own, name := range map[string]string{
		"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
		"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
	} {
		for _, part := range []string{".weight", ".bias"} {
			names[own+part] = "model.layers.%d." + name + part
		}
	}
	return names
}

// gemmaNames returns the tensor names of Gemma, which has four norms in a layer.
func gemmaNames() map[string]string {
	return with(llamaNames(), map[string]string{
		"post_attention_norm.weight": "model.layers.%d.post_attention_layernorm.weight",
		"ffn_norm.weight":            "model.layers.%d.pre_feedforward_layernorm.weight",
		"post_ffw_norm.weight":       "model.layers.%d.post_feedforward_layernorm.weight",
	})
}

// with changes and adds names.
func with(names, more map[string]string) map[string]string {
	maps.Copy(names, more)
	return names
}

// neutral are keys that change the arithmetic, with the values that do not. Unless
// an architecture has them among its fields, other values are refused: passing over
// them would give wrong text without an error.
func neutral() map[string][]float64 {
	off, one := []float64{0}, []float64{0, 1}
	return map[string][]float64{
		"expert_count": off, "expert_shared_count": off, "leading_dense_block_count": off, "nextn_predict_layers": off,
		"expert_weights_scale": one, "attention.sliding_window": off, "attention.clamp_kqv": off, "attention.max_alibi_bias": off,
		"attention.scale": off, "attn_logit_softcapping": off, "final_logit_softcapping": off,
		"logit_scale": one, "residual_scale": one, "embedding_scale": one, "rope.freq_base_swa": off,
	}
}

// neutralFlags are such keys that are true or false.
func neutralFlags() map[string]bool {
	return map[string]bool{"attention.causal": true, "use_parallel_residual": false, "expert_weights_norm": false}
}
