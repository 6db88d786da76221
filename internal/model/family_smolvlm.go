package model

import (
	"strings"

	"github.com/dynctl/dynctl/internal/model/idefics"
)

// smolVLM covers SmolVLM and SmolVLM2, and idefics3 Idefics 3, which have the same
// arithmetic: a SigLIP tower whose patches are concatenated in squares, one linear layer
// without bias, and a Llama or another plain decoder.
func smolVLM() family {
	f := idefics3()
	f.modelType, f.architectures = "smolvlm", []string{"SmolVLMForConditionalGeneration"}
	return f
}

func idefics3() family {
	fam := withText("model.text_model.")
	fam.modelType, fam.architectures = "idefics3", []string{"Idefics3ForConditionalGeneration"}
	fam.vision = &visionFamily{
		read: func(f fields, c *Config) *Vision {
			v := readTower(f, idefics3Tower)
			v.PostNorm = true
			v.Projector = Projector{Kind: ProjectShuffle, Factor: f.size("scale_factor", idefics.ScaleFactor, maxWidth)}
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

// withText returns a model that reads images with a plain decoder, whose fields are under
// text_config: a Llama unless that names another model_type.
func withText(roots ...string) family {
	fam := llama()
	fam.nested, fam.roots = true, roots
	fam.texts = []family{llama(), mistral(), qwen2(), qwen3()}
	for i := range fam.texts {
		d := &fam.texts[i].defaults
		d.layers, d.hidden, d.heads, d.ffn, d.vocab = 32, 4096, 32, 11008, 32000
	}
	fam.texts[1].defaults.ffn = 14336
	for i := range fam.texts[2:] {
		d := &fam.texts[2+i].defaults
		d.ffn, d.vocab = 22016, 151936
	}
	return fam
}

// text returns a family with the defaults and traits of the text model that a checkpoint
// names.
func (fam family) text(f fields) family {
	if fam.texts == nil {
		return fam
	}
	kind := fam.texts[0].modelType
	if f.nested { // else it is that of the whole
		kind = f.text("model_type", kind)
	}
	var known []string
	for _, text := range fam.texts {
		if text.modelType == kind {
			fam.defaults, fam.traits = text.defaults, text.traits
			f.refuse("qk_layer_norms", "its norms of queries and keys are not those of "+kind)
			return fam
		}
		known = append(known, text.modelType)
	}
	f.fail(ErrUnsupported, "model_type", "%q is unknown; known are %s", kind, strings.Join(known, ", "))
	return fam
}
