package model

// smolVLM covers SmolVLM and SmolVLM2, and idefics3 Idefics 3, which have the same
// arithmetic: a SigLIP tower whose patches are concatenated in squares, one linear layer
// without bias, and a Llama.
func smolVLM() family {
	f := idefics3()
	f.modelType, f.architectures = "smolvlm", []string{"SmolVLMForConditionalGeneration"}
	return f
}

func idefics3() family {
	fam := nestedLlama("model.text_model.")
	fam.modelType, fam.architectures = "idefics3", []string{"Idefics3ForConditionalGeneration"}
	fam.vision = &visionFamily{
		read: func(f fields, c *Config) *Vision {
			v := readTower(f, idefics3Tower)
			v.PostNorm = true
			v.Projector = Projector{Kind: ProjectShuffle, Factor: f.size("scale_factor", 2, maxWidth)}
			readImageToken(f, c, &v, 128257)
			if *f.err == nil && v.Side()%v.Projector.Factor != 0 {
				f.fail(ErrConfig, "scale_factor", "%d does not divide the %d patches of a side", v.Projector.Factor, v.Side())
			}
			return &v
		},
		names:          withNames(towerNames(), map[Role]string{RoleProjectIn: "projector.modality_projection.proj.weight"}),
		towerRoots:     []string{"model.vision_model.", "vision_model."},
		projectorRoots: []string{"model.connector.", "connector."},
	}
	return fam
}

// nestedLlama returns the text part of a model that reads images with a Llama, whose
// fields are under text_config.
func nestedLlama(roots ...string) family {
	fam := llama()
	fam.nested = true
	fam.roots = roots
	fam.defaults.layers, fam.defaults.hidden, fam.defaults.heads, fam.defaults.ffn, fam.defaults.vocab = 32, 4096, 32, 11008, 32000
	traits := fam.traits
	fam.traits = func(f fields, c *Config) {
		if kind := f.text("model_type", llama().modelType); f.nested && kind != llama().modelType {
			f.fail(ErrUnsupported, "model_type", "%q is unknown; known is llama", kind)
		}
		f.refuse("qk_layer_norms", "layers of llama have no norms on queries and keys")
		traits(f, c)
	}
	return fam
}
