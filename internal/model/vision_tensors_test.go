package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestVisionTensors: names and shapes of the tensors of each family, those of the layers
// once.
func TestVisionTensors(t *testing.T) {
	norm := func(name string) []string { return []string{name + ".weight [12]", name + ".bias [12]"} }
	layer := slices.Concat(
		norm("tower.encoder.layers.0.layer_norm1"),
		[]string{"tower.encoder.layers.0.self_attn.q_proj.weight [12 12]", "tower.encoder.layers.0.self_attn.q_proj.bias [12]"},
		[]string{"tower.encoder.layers.0.self_attn.k_proj.weight [12 12]", "tower.encoder.layers.0.self_attn.k_proj.bias [12]"},
		[]string{"tower.encoder.layers.0.self_attn.v_proj.weight [12 12]", "tower.encoder.layers.0.self_attn.v_proj.bias [12]"},
		[]string{"tower.encoder.layers.0.self_attn.out_proj.weight [12 12]", "tower.encoder.layers.0.self_attn.out_proj.bias [12]"},
		norm("tower.encoder.layers.0.layer_norm2"),
		[]string{"tower.encoder.layers.0.mlp.fc1.weight [20 12]", "tower.encoder.layers.0.mlp.fc1.bias [20]"},
		[]string{"tower.encoder.layers.0.mlp.fc2.weight [12 20]", "tower.encoder.layers.0.mlp.fc2.bias [12]"},
	)
	patch, patchBias := "tower.embeddings.patch_embedding.weight [12 3 4 4]", "tower.embeddings.patch_embedding.bias [12]"
	position := "tower.embeddings.position_embedding.weight "
	specs := visionSpecs()
	plain := specs["llava"]
	plain.Images = maps.Clone(plain.Images)
	plain.Images["multimodal_projector_bias"] = false
	specs["llava without biases"] = plain
	for name, want := range map[string][]string{
		"idefics3": slices.Concat([]string{patch, patchBias, position + "[16 12]"}, layer, norm("tower.post_layernorm"),
			[]string{"projector.modality_projection.proj.weight [16 48]"}),
		"llava": slices.Concat([]string{patch, "tower.embeddings.class_embedding [12]", position + "[17 12]"}, norm("tower.pre_layrnorm"), layer,
			[]string{"projector.linear_1.weight [16 12]", "projector.linear_1.bias [16]", "projector.linear_2.weight [16 16]", "projector.linear_2.bias [16]"}),
		"llava_next": slices.Concat([]string{patch, "tower.embeddings.class_embedding [12]", position + "[17 12]"}, norm("tower.pre_layrnorm"), layer,
			[]string{"projector.linear_1.weight [16 12]", "projector.linear_1.bias [16]", "projector.linear_2.weight [16 16]", "projector.linear_2.bias [16]", "image_newline [16]"}),
		"llava without biases": slices.Concat([]string{patch, "tower.embeddings.class_embedding [12]", position + "[17 12]"}, norm("tower.pre_layrnorm"), layer,
			[]string{"projector.linear_1.weight [16 12]", "projector.linear_2.weight [16 16]"}),
		"gemma3_text": slices.Concat([]string{patch, patchBias, position + "[16 12]"}, layer, norm("tower.post_layernorm"),
			[]string{"projector.mm_soft_emb_norm.weight [12]", "projector.mm_input_projection_weight [12 16]"}),
	} {
		spec := specs[name].withDefaults()
		raw, err := spec.configJSON(1)
		if err != nil {
			t.Fatal(err)
		}
		config, err := ParseConfig(raw)
		if err != nil {
			t.Fatal(err)
		}
		fam := config.family().vision
		names := strings.NewReplacer(fam.towerRoots[0], "tower.", fam.projectorRoots[0], "projector.")
		var got []string
		for _, s := range config.Tensors() {
			if s.Role.Vision() && s.Layer == 0 {
				got = append(got, fmt.Sprint(names.Replace(s.Name), " ", s.Shape))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: tensors\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

func TestVisionRoles(t *testing.T) {
	for _, tt := range []struct {
		role                     Role
		vision, layer, perExpert bool
	}{
		{RoleHead, false, false, false}, {RoleQ, false, true, false}, {RoleExpertDown, false, true, true},
		{RolePatch, true, false, false}, {RoleProjectOutBias, true, false, false},
		{RoleVisionNorm, true, true, false}, {RoleVisionDownBias, true, true, false},
	} {
		if r := tt.role; r.Vision() != tt.vision || r.PerLayer() != tt.layer || r.PerExpert() != tt.perExpert {
			t.Errorf("role %d: %v, %v, %v", r, r.Vision(), r.PerLayer(), r.PerExpert())
		}
	}
}

// TestVisionIgnorable: what published files have beside the tensors that are used.
func TestVisionIgnorable(t *testing.T) {
	n := newVisionNaming(gemma3().vision, []string{"vision_tower.vision_model.embeddings.patch_embedding.weight"})
	for name, want := range map[string]bool{
		"vision_tower.vision_model.encoder.layers.26.mlp.fc1.weight":   true,
		"vision_tower.vision_model.post_layernorm.bias":                true,
		"vision_tower.vision_model.head.probe":                         true,
		"vision_tower.vision_model.embeddings.position_ids":            true,
		"vision_tower.vision_model.embeddings.other":                   false,
		"language_model.model.encoder.layers.1.mlp.fc1.weight":         false,
		"multi_modal_projector.vision_tower.vision_model.head.weight1": false,
	} {
		if n.ignorable(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}
