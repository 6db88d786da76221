package model

// gemma3 covers Gemma 3, with or without the part that reads images: a SigLIP tower whose
// patches are averaged in squares. Unlike Gemma 2 it has norms on queries and
// keys, no caps unless the file sets them, and one layer in six without a window. Layers
// with a window rotate by their own base, which rope_scaling does not scale.
func gemma3() family {
	return family{
		modelType:     "gemma3_text",
		architectures: []string{"Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"},
		defaults: defaults{
			context: 131072, headDim: 256, kvHeads: 4, normEps: 1e-6, ropeTheta: 1e6, tied: true, act: GELUTanh,
			layers: 26, hidden: 2304, heads: 8, ffn: 9216, vocab: 262208,
		},
		actField: "hidden_activation",
		nested:   true,
		traits: func(f fields, c *Config) {
			readGemma(f, c)
			c.QKNorm = true
			c.ScoreCap = f.limit("attn_logit_softcapping", 0)
			c.LogitCap = f.limit("final_logit_softcapping", 0)
			c.LocalRoPE = &RoPE{Theta: f.positive("rope_local_base_freq", 1e4), Type: "default", Attention: 1}
			pattern := f.size("sliding_window_pattern", 6, maxLayers)
			readWindow(f, c, f.window("sliding_window", 4096), func(layer int) bool { return (layer+1)%pattern != 0 })
		},
		names: gemmaNames(),
		roots: []string{"model.", "language_model.model.", "model.language_model."},
		vision: &visionFamily{
			read: readGemmaVision,
			names: withNames(towerNames(), map[Role]string{
				RoleProjectNorm: "projector.mm_soft_emb_norm.weight",
				RoleProjectIn:   "projector.mm_input_projection_weight",
			}),
			towerRoots:     towerRoots(),
			projectorRoots: []string{"multi_modal_projector.", "model.multi_modal_projector."},
		},
	}
}

func readGemmaVision(f fields, c *Config) *Vision {
	if !f.has("vision_config") {
		return nil
	}
	v := readTower(f, siglipTower)
	v.PostNorm, v.Mutual = true, true
	tokens := f.size("mm_tokens_per_image", 256, maxPatches)
	readImageToken(f, c, &v, 262144)
	if *f.err != nil {
		return nil
	}
	rows := intRoot(tokens)
	if rows < 0 || v.Side()%rows != 0 {
		f.fail(ErrUnsupported, "mm_tokens_per_image", "%d are not squares of the %d × %d patches of an image", tokens, v.Side(), v.Side())
		return nil
	}
	v.Projector = Projector{Kind: ProjectPool, Factor: v.Side() / rows, NormEps: v.NormEps}
	return &v
}
