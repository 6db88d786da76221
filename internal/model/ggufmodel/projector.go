package ggufmodel

import "maps"

// projector describes a kind of mmproj file as data: what llama.cpp calls the part of a model
// that turns images into rows of text embeddings. A mmproj file stands beside the GGUF file of
// the text model.
type projector struct {
	name string // clip.projector_type
	// modelType and class are what config.json calls the whole, processor and imageProcessor
	// what preprocessor_config.json calls what prepares images for it.
	modelType, class, processor, imageProcessor string
	// texts maps the architectures of text models to the model_type of text_config.
	texts map[string]string
	root  string // of the text model's tensors, in place of "model."
	tower string // model_type of the tower
	// fields are those of vision_config and the keys that hold them, below "clip.vision.".
	fields []field
	// acts are the activations of the tower: with clip.use_gelu, with clip.use_silu, and with
	// neither; "" where the kind has none such.
	acts [3]string
	// names maps tensors to their names in a Hugging Face folder: those of a layer without
	// their "v.blk.%d.", where %d of the result is the layer.
	names map[string]string
	// out is the tensor whose dimension outDim counts the values of a row.
	out    string
	outDim int
	// twoFrames: there is a tensor for the patches of each of two frames.
	twoFrames bool
	// token is the text of the token that stands for a row of an image, and around are those
	// that stand around images.
	token  string
	around []string
	// convert reads the rest.
	convert func(m *mmproj)
}

// projectors is the table of known kinds.
func projectors() []projector {
	plain := map[string]string{"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
	return []projector{
		{
			name: "mlp", modelType: "llava", class: "LlavaForConditionalGeneration", processor: "LlavaProcessor", imageProcessor: "CLIPImageProcessor",
			texts: plain, root: "model.language_model.", tower: "clip_vision_model", fields: towerFields(), acts: [3]string{"gelu", "", "quick_gelu"},
			names: with(towerTensors("model.vision_tower.vision_model."), map[string]string{
				"v.class_embd":        "model.vision_tower.vision_model.embeddings.class_embedding",
				"v.pre_ln.weight":     "model.vision_tower.vision_model.pre_layrnorm.weight",
				"v.pre_ln.bias":       "model.vision_tower.vision_model.pre_layrnorm.bias",
				"mm.0.weight":         "model.multi_modal_projector.linear_1.weight",
				"mm.0.bias":           "model.multi_modal_projector.linear_1.bias",
				"mm.2.weight":         "model.multi_modal_projector.linear_2.weight",
				"mm.2.bias":           "model.multi_modal_projector.linear_2.bias",
				"v.image_newline":     "model.image_newline",
				"model.image_newline": "model.image_newline", // of older files
			}),
			out: "mm.2.weight", token: "<image>", convert: (*mmproj).llava,
		}, {
			name: "idefics3", modelType: "idefics3", class: "Idefics3ForConditionalGeneration", processor: "Idefics3Processor", imageProcessor: "Idefics3ImageProcessor",
			texts: plain, root: "model.text_model.", tower: "idefics3_vision", fields: towerFields(), acts: [3]string{"gelu_pytorch_tanh", "", ""},
			names: with(towerTensors("model.vision_model."), map[string]string{
				"v.patch_embd.bias":  "model.vision_model.embeddings.patch_embedding.bias",
				"mm.model.fc.weight": "model.connector.modality_projection.proj.weight",
			}),
			out: "mm.model.fc.weight", token: "<image>", around: []string{"<fake_token_around_image>"}, convert: (*mmproj).idefics3,
		}, {
			name: "gemma3", modelType: "gemma3", class: "Gemma3ForConditionalGeneration", processor: "Gemma3Processor", imageProcessor: "Gemma3ImageProcessor",
			texts: map[string]string{"gemma3": "gemma3_text"}, root: "model.language_model.", tower: "siglip_vision_model", fields: towerFields(),
			acts: [3]string{"gelu_pytorch_tanh", "", ""},
			names: with(towerTensors("model.vision_tower.vision_model."), map[string]string{
				"v.patch_embd.bias":          "model.vision_tower.vision_model.embeddings.patch_embedding.bias",
				"mm.soft_emb_norm.weight":    "model.multi_modal_projector.mm_soft_emb_norm.weight",
				"mm.input_projection.weight": "model.multi_modal_projector.mm_input_projection_weight",
			}),
			out: "mm.input_projection.weight", outDim: 1, token: "<image_soft_token>", around: []string{"<start_of_image>", "<end_of_image>"},
			convert: (*mmproj).gemma3,
		}, {
			name: "qwen2vl_merger", modelType: "qwen2_vl", class: "Qwen2VLForConditionalGeneration", processor: "Qwen2VLProcessor", imageProcessor: "Qwen2VLImageProcessor",
			texts: map[string]string{"qwen2vl": "qwen2_vl_text"}, root: "model.language_model.", tower: "qwen2_vl",
			fields: qwenFields("embed_dim"), acts: [3]string{"gelu", "", "quick_gelu"},
			names: qwenTensors("mlp.fc1", "mlp.fc2"), twoFrames: true,
			out: "mm.2.weight", token: "<|image_pad|>", convert: (*mmproj).qwen2,
		}, {
			name: "qwen2.5vl_merger", modelType: "qwen2_5_vl", class: "Qwen2_5_VLForConditionalGeneration", processor: "Qwen2_5_VLProcessor", imageProcessor: "Qwen2VLImageProcessor",
			texts: map[string]string{"qwen2vl": "qwen2_5_vl_text"}, root: "model.language_model.", tower: "qwen2_5_vl",
			fields: qwenFields("hidden_size"), acts: [3]string{"", "silu", ""},
			names: with(qwenTensors("mlp.up_proj", "mlp.down_proj"), map[string]string{
				"ffn_gate.weight": "model.visual.blocks.%d.mlp.gate_proj.weight",
				"ffn_gate.bias":   "model.visual.blocks.%d.mlp.gate_proj.bias",
			}),
			twoFrames: true, out: "mm.2.weight", token: "<|image_pad|>", convert: (*mmproj).qwen25,
		},
	}
}

func towerFields() []field {
	return []field{
		{name: "hidden_size", key: "embedding_length"},
		{name: "num_hidden_layers", key: "block_count"},
		{name: "num_attention_heads", key: "attention.head_count"},
		{name: "image_size", key: "image_size"},
		{name: "patch_size", key: "patch_size"},
		{name: "layer_norm_eps", key: "attention.layer_norm_epsilon", fraction: true},
	}
}

func qwenFields(width string) []field {
	return []field{
		{name: width, key: "embedding_length"},
		{name: "depth", key: "block_count"},
		{name: "num_heads", key: "attention.head_count"},
		{name: "patch_size", key: "patch_size"},
		{name: "spatial_merge_size", key: "spatial_merge_size", optional: true},
	}
}

// towerTensors returns the tensor names that CLIP and SigLIP share.
func towerTensors(root string) map[string]string {
	names := map[string]string{
		"v.patch_embd.weight":    root + "embeddings.patch_embedding.weight",
		"v.position_embd.weight": root + "embeddings.position_embedding.weight",
	}
	return bothParts(names, root, map[string]string{
		"v.post_ln": "post_layernorm",
		"ln1":       "encoder.layers.%d.layer_norm1", "ln2": "encoder.layers.%d.layer_norm2",
		"attn_q": "encoder.layers.%d.self_attn.q_proj", "attn_k": "encoder.layers.%d.self_attn.k_proj",
		"attn_v": "encoder.layers.%d.self_attn.v_proj", "attn_out": "encoder.layers.%d.self_attn.out_proj",
		"ffn_up": "encoder.layers.%d.mlp.fc1", "ffn_down": "encoder.layers.%d.mlp.fc2",
	})
}

// qwenTensors returns the tensor names of towers of Qwen's models.
func qwenTensors(up, down string) map[string]string {
	const root = "model.visual."
	return bothParts(map[string]string{"v.patch_embd.weight": root + "patch_embed.proj.weight"}, root, map[string]string{
		"v.post_ln": "merger.ln_q", "mm.0": "merger.mlp.0", "mm.2": "merger.mlp.2",
		"ln1": "blocks.%d.norm1", "ln2": "blocks.%d.norm2",
		"attn_q": "blocks.%d.attn.q", "attn_k": "blocks.%d.attn.k", "attn_v": "blocks.%d.attn.v", "attn_out": "blocks.%d.attn.proj",
		"ffn_up": "blocks.%d." + up, "ffn_down": "blocks.%d." + down,
	})
}

// bothParts adds weights and biases to names.
func bothParts(names map[string]string, root string, more map[string]string) map[string]string {
	names = maps.Clone(names)
	for own, name := range more {
		for _, part := range []string{".weight", ".bias"} {
			names[own+part] = root + name + part
		}
	}
	return names
}
