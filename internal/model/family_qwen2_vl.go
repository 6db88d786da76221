package model

// qwen2VL covers Qwen2-VL: a tower that takes images of any size as patches, which turns
// queries and keys by the row and column of each, and a Qwen2 whose tokens have three
// positions. Its own fields stand at the top of the file or, in newer ones, in text_config.
func qwen2VL() family {
	fam := qwen2()
	fam.modelType, fam.architectures = "qwen2_vl", []string{"Qwen2VLForConditionalGeneration"}
	fam.inner = "qwen2_vl_text"
	fam.nested, fam.grids = true, true
	fam.roots = []string{"model.", "model.language_model."}
	fam.defaults = defaults{
		context: 32768, normEps: 1e-5, ropeTheta: 1e6,
		layers: 80, hidden: 8192, heads: 64, kvHeads: 8, ffn: 29568, vocab: 152064,
	}
	fam.traits = func(f fields, c *Config) {
		if kind := f.text("model_type", c.Family); f.nested && kind != c.Family && kind != c.Family+"_text" {
			f.fail(ErrUnsupported, "model_type", "%q is unknown; known is %s_text", kind, c.Family)
		}
		c.QKVBias = true
		readQwenWindow(f, c, 80)
	}
	fam.vision = &visionFamily{
		read:           readQwenVision,
		names:          qwenTowerNames("mlp.fc1", "mlp.fc2"),
		fused:          qwenTowerFused(),
		towerRoots:     []string{"visual.", "model.visual."},
		projectorRoots: []string{"visual.merger.", "model.visual.merger."},
	}
	return fam
}

// qwenTowerNames returns the tensor names of towers of Qwen's models, whose MLPs differ.
// Queries, keys and values have tensors of their own in GGUF files alone.
func qwenTowerNames(up, down string) map[Role]string {
	names := map[Role]string{RolePatch: "tower.patch_embed.proj.weight"}
	for role, name := range map[Role]string{
		RoleVisionNorm:    "tower.blocks.%d.norm1",
		RoleVisionQ:       "tower.blocks.%d.attn.q",
		RoleVisionK:       "tower.blocks.%d.attn.k",
		RoleVisionV:       "tower.blocks.%d.attn.v",
		RoleVisionO:       "tower.blocks.%d.attn.proj",
		RoleVisionMLPNorm: "tower.blocks.%d.norm2",
		RoleVisionUp:      "tower.blocks.%d." + up,
		RoleVisionDown:    "tower.blocks.%d." + down,
		RoleProjectNorm:   "projector.ln_q",
		RoleProjectIn:     "projector.mlp.0",
		RoleProjectOut:    "projector.mlp.2",
	} {
		names[role], names[role+1] = name+".weight", name+".bias"
	}
	return names
}

func qwenTowerFused() []fused {
	return []fused{
		{"tower.blocks.%d.attn.qkv.weight", []Role{RoleVisionQ, RoleVisionK, RoleVisionV}},
		{"tower.blocks.%d.attn.qkv.bias", []Role{RoleVisionQBias, RoleVisionKBias, RoleVisionVBias}},
	}
}

func readQwenVision(f fields, c *Config) *Vision {
	t, v := readQwenTower(f, c)
	v.Hidden = t.size("embed_dim", 1280, maxWidth)
	v.Act = readGELU(t, "hidden_act", QuickGELU)
	ffn := float64(v.Hidden) * t.positive("mlp_ratio", 4)
	if v.FFN = int(min(ffn, maxWidth)); v.FFN < 1 || ffn > maxWidth {
		t.fail(ErrConfig, "mlp_ratio", "an MLP of %v values", ffn)
	}
	checkQwenTower(t, "hidden_size", c, v)
	return v
}

// readQwenTower reads the fields that all towers of Qwen's models have.
func readQwenTower(f fields, c *Config) (t fields, v *Vision) {
	t, _ = f.object("vision_config")
	// Norms and the activation of the merger have no fields.
	v = &Vision{
		Tower:   c.Family,
		Layers:  t.size("depth", 32, maxLayers),
		Heads:   t.size("num_heads", 16, maxHeads),
		NormEps: 1e-6, Grid: true,
		PatchSize: t.size("patch_size", 14, maxWidth),
		Frames:    t.size("temporal_patch_size", 2, maxWidth),
		Projector: Projector{Kind: ProjectMerge, Factor: t.size("spatial_merge_size", 2, maxWidth), Act: GELU, Bias: true, NormEps: 1e-6},
	}
	if kind := t.text("model_type", c.Family); kind != c.Family && kind != c.Family+"_vision" {
		t.fail(ErrUnsupported, "model_type", "%q is unknown; known is %s", kind, c.Family)
	}
	for _, name := range []string{"in_channels", "in_chans"} {
		if channels := t.size(name, 3, maxWidth); channels != 3 {
			t.fail(ErrUnsupported, name, "%d, images have 3", channels)
		}
	}
	readImageToken(f, c, v, 151655)
	return t, v
}

// checkQwenTower refuses sizes that do not fit each other. out is the field with the width of
// the text model's embeddings.
func checkQwenTower(t fields, out string, c *Config, v *Vision) {
	width := t.size(out, 3584, maxWidth)
	if *t.err != nil {
		return
	}
	if v.Hidden%v.Heads != 0 || v.Hidden/v.Heads%4 != 0 {
		t.fail(ErrConfig, "num_heads", "%d heads of %d values: want a multiple of 4 in each, for pairs that turn by rows and by columns", v.Heads, v.Hidden)
	}
	if width != c.Hidden {
		t.fail(ErrConfig, out, "%d, the text model has %d", width, c.Hidden)
	}
	if block := v.PatchSize * v.Projector.Factor; block > maxPatchSide || v.Frames > maxPatchSide {
		t.fail(ErrConfig, "patch_size", "squares of %d × %d patches of %d pixels and %d frames", v.Projector.Factor, v.Projector.Factor, v.PatchSize, v.Frames)
	}
}

// maxPatchSide bounds the pixels of a side of the squares that make one row, and frames.
const maxPatchSide = 1 << 10
