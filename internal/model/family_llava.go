package model

// llava covers LLaVA 1.5 and models of its form: a CLIP tower, or a SigLIP one, whose
// patches each pass an MLP, and a Llama or another plain decoder.
func llava() family {
	fam := withText("language_model.model.", "model.language_model.")
	fam.modelType, fam.architectures = "llava", []string{"LlavaForConditionalGeneration"}
	fam.vision = &visionFamily{
		read: func(f fields, c *Config) *Vision {
			clip := clipTower
			if !f.has("vision_config") {
				clip.hidden, clip.ffn, clip.layers, clip.heads, clip.image, clip.patch = 1024, 4096, 24, 16, 336, 14
			}
			v := readTower(f, clip, siglipTower)
			readFeatureLayer(f, &v, -2)
			v.Projector = Projector{
				Kind: ProjectMLP, Factor: 1,
				Act:  readGELU(f, "projector_hidden_act", GELU),
				Bias: f.boolean("multimodal_projector_bias", true),
			}
			switch strategy := f.text("vision_feature_select_strategy", "default"); {
			case strategy == "default" && !v.ClassToken && *f.err == nil:
				f.fail(ErrUnsupported, "vision_feature_select_strategy", "default would drop a patch of a tower without class token; want full")
			case strategy == "full":
				v.KeepClass = v.ClassToken
			case strategy != "default":
				f.fail(ErrUnsupported, "vision_feature_select_strategy", "%q is unknown; known are default, full", strategy)
			}
			readImageToken(f, c, &v, 32000)
			return &v
		},
		names: withNames(towerNames(), map[Role]string{
			RoleProjectIn:      "projector.linear_1.weight",
			RoleProjectInBias:  "projector.linear_1.bias",
			RoleProjectOut:     "projector.linear_2.weight",
			RoleProjectOutBias: "projector.linear_2.bias",
		}),
		towerRoots:     towerRoots(),
		projectorRoots: []string{"multi_modal_projector.", "model.multi_modal_projector."},
	}
	return fam
}

// llavaNext covers LLaVA 1.6, also called LLaVA-NeXT: LLaVA's tower and projector over a whole
// view and the tiles of an image, whose rows are put back into lines that end with a learned
// row.
func llavaNext() family {
	fam := llava()
	fam.modelType, fam.architectures = "llava_next", []string{"LlavaNextForConditionalGeneration"}
	read := fam.vision.read
	fam.vision.read = func(f fields, c *Config) *Vision {
		v := read(f, c)
		v.Newline = true
		if v.KeepClass {
			f.fail(ErrUnsupported, "vision_feature_select_strategy", "full would keep a class token, which has no place in the lines of an image")
		}
		if !f.boolean("use_image_newline_parameter", true) {
			f.fail(ErrUnsupported, "use_image_newline_parameter", "false: lines of an image end with a learned row")
		}
		return v
	}
	fam.vision.names = withNames(fam.vision.names, map[Role]string{RoleNewline: "beside.image_newline"})
	return fam
}
