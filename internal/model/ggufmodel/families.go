package ggufmodel

import (
	"maps"
	"math"
	"slices"
)

// view reads pixels of a side of a view and of a patch.
func (m *mmproj) view() (image, patch int) {
	return m.count("image_size", 1, maxTowerSide), m.count("patch_size", 1, maxTowerSide)
}

// llava converts LLaVA 1.5 and, with a row that ends lines, 1.6. The layers in the file are
// those whose output the projector reads, unless a key names another one.
func (m *mmproj) llava() {
	image, patch := m.view()
	m.vision.config["intermediate_size"] = m.ffn
	switch {
	case !m.vision.hasTensor("v.class_embd"):
		m.fail(unsupportedf("clip.projector_type %q with a tower that has no class token: only CLIP is known", m.name))
	case m.vision.hasTensor("mm.3.weight"):
		m.fail(unsupportedf("clip.projector_type %q with norms (tensor mm.3.weight)", m.name))
	}
	layers := m.vision.number("num_hidden_layers")
	feature := []int{layers}
	if m.header.Keys.Has(m.vision.key("feature_layer")) {
		list, _, err := m.header.Keys.Ints(m.vision.key("feature_layer"))
		m.fail(err)
		if feature = list; err == nil && (len(list) != 1 || list[0] > layers) {
			m.fail(unsupportedf("%s is %v, want one of the %d layers", m.vision.key("feature_layer"), list, layers))
		}
	}
	if len(feature) == 1 {
		m.config["vision_feature_layer"] = feature[0]
	}
	m.config["vision_feature_select_strategy"] = "default"
	m.config["projector_hidden_act"] = "gelu"
	m.config["multimodal_projector_bias"] = m.vision.hasTensor("mm.0.bias")
	m.prepare["size"] = map[string]int{"shortest_edge": image}
	m.prepare["crop_size"] = map[string]int{"height": image, "width": image}
	m.vision.config["patch_size"] = patch
	m.lines()
}

// lines tells LLaVA 1.6 from 1.5.
func (m *mmproj) lines() {
	merge, _, err := m.header.Keys.Text(m.vision.key("mm_patch_merge_type"))
	m.fail(err)
	flat, err := m.pinpoints()
	m.fail(err)
	newline := m.vision.hasTensor("v.image_newline") || m.vision.hasTensor("model.image_newline")
	switch {
	case !newline && len(flat) == 0 && (merge == "" || merge == "flat"):
		return
	case !newline || len(flat) == 0 || merge != "" && merge != "spatial_unpad":
		m.fail(unsupportedf("tiles that are put together in another way than LLaVA 1.6 does, which has %s, %s %q and tensor v.image_newline",
			m.vision.key("image_grid_pinpoints"), m.vision.key("mm_patch_merge_type"), "spatial_unpad"))
		return
	}
	m.modelType, m.class = "llava_next", "LlavaNextForConditionalGeneration"
	m.processor, m.imageProcessor = "LlavaNextProcessor", "LlavaNextImageProcessor"
	m.config["image_grid_pinpoints"], m.prepare["image_grid_pinpoints"] = flat, flat
}

// pinpoints reads sizes of images in tiles. Some writers put widths first and others heights,
// which makes no difference to a list that has each size both ways.
func (m *mmproj) pinpoints() (sizes [][2]int, err error) {
	key := m.vision.key("image_grid_pinpoints")
	list, _, err := m.header.Keys.Ints(key)
	switch {
	case err != nil:
		return nil, err
	case len(list)%2 != 0 || len(list) > 2*maxPinpoints:
		return nil, badf("%s has %d numbers, want pairs, at most %d", key, len(list), maxPinpoints)
	}
	for i := 0; i < len(list); i += 2 {
		sizes = append(sizes, [2]int{list[i], list[i+1]})
	}
	for _, s := range sizes {
		if !slices.Contains(sizes, [2]int{s[1], s[0]}) {
			return nil, unsupportedf("%s has %d × %d but not the same turned, and does not tell heights from widths", key, s[0], s[1])
		}
	}
	return sizes, nil
}

// idefics3 converts Idefics 3 and SmolVLM, which cut images into tiles of the size of a view.
// Their longest edge is four views where the file does not say it.
func (m *mmproj) idefics3() {
	image, _ := m.view()
	m.vision.config["intermediate_size"] = m.ffn
	m.config["scale_factor"] = m.count("projector.scale_factor", 2, maxTowerSide)
	m.prepare["size"] = map[string]int{"longest_edge": m.count("preproc_image_size", 4*image, 4*maxTowerSide)}
	m.prepare["max_image_size"] = map[string]int{"longest_edge": image}
}

// gemma3 converts Gemma 3, whose images are one view.
func (m *mmproj) gemma3() {
	image, patch := m.view()
	m.vision.config["intermediate_size"] = m.ffn
	m.prepare["size"] = map[string]int{"height": image, "width": image}
	side, scale := image/patch, m.count("projector.scale_factor", 4, maxTowerSide)
	if side == 0 || side%scale != 0 {
		m.fail(badf("%d does not divide the %d patches of a side", scale, side))
		return
	}
	m.config["mm_tokens_per_image"] = (side / scale) * (side / scale)
}

// Bounds of the pixels of an image that published checkpoints of Qwen2-VL and Qwen2.5-VL have.
const qwenFewest, qwenMost = 4 * 28 * 28, 128 * 128 * 28 * 28

// qwen converts what Qwen2-VL and Qwen2.5-VL share.
func (m *mmproj) qwen() {
	const frames, eps = 2, 1e-6 // vision_config has no field for the second
	v := m.vision.config
	v["temporal_patch_size"] = frames
	merge := m.count("spatial_merge_size", 2, maxTowerSide)
	v["spatial_merge_size"] = merge
	if !m.vision.hasTensor(patchTensor) || !m.vision.hasTensor(secondPatchTensor) {
		m.fail(badf("tensor %s or %s is missing: there is one for each of two frames", patchTensor, secondPatchTensor))
	}
	if e, ok := m.vision.real("attention.layer_norm_epsilon"); ok && e != eps {
		m.fail(unsupportedf("%s is %v, which projectors of type %s do not have here, but %v", m.vision.key("attention.layer_norm_epsilon"), e, m.name, eps))
	}
	_, patch := m.view()
	m.prepare["patch_size"], m.prepare["merge_size"], m.prepare["temporal_patch_size"] = patch, merge, frames
	m.prepare["min_pixels"] = m.count("image_min_pixels", qwenFewest, math.MaxInt32)
	m.prepare["max_pixels"] = m.count("image_max_pixels", qwenMost, math.MaxInt32)
	m.sections()
}

// sections reads how many pairs of a head turn by each of three positions.
func (m *mmproj) sections() {
	key := m.text.key("rope.dimension_sections")
	list, ok, err := m.text.keys.Ints(key)
	m.fail(err)
	if err != nil {
		return
	}
	if !ok || len(list) < 3 || slices.ContainsFunc(list[3:], func(n int) bool { return n != 0 }) {
		m.fail(badf("%s of the text model is %v, want numbers for time, height and width", key, list))
		return
	}
	text := m.config["text_config"].(map[string]any)
	scaling := map[string]any{"rope_type": "default"}
	if has, ok := text["rope_scaling"].(map[string]any); ok {
		scaling = maps.Clone(has)
	}
	scaling["mrope_section"] = list[:3]
	text["rope_scaling"] = scaling
}

func (m *mmproj) qwen2() {
	m.qwen()
	hidden := m.vision.number("embed_dim")
	m.vision.config["hidden_size"] = m.text.number("hidden_size")
	m.vision.config["mlp_ratio"] = ratio(m.ffn, hidden)
}

// ratio returns a number that, multiplied by n, gives at least m but not m + 1.
func ratio(m, n int) float64 {
	r := float64(m) / float64(max(n, 1))
	if int(r*float64(n)) < m {
		r = math.Nextafter(r, math.Inf(1))
	}
	return r
}

func (m *mmproj) qwen25() {
	m.qwen()
	v := m.vision.config
	v["intermediate_size"], v["out_hidden_size"] = m.ffn, m.text.number("hidden_size")
	v["window_size"] = m.count("window_size", 112, maxTowerSide)
	depth := m.vision.number("depth")
	if depth > maxTowerLayers {
		m.fail(badf("%s is %d, more than %d", m.vision.key("block_count"), depth, maxTowerLayers))
		return
	}
	pattern, ok, err := m.header.Keys.Int(m.vision.key("n_wa_pattern"))
	m.fail(err)
	if !ok && err == nil {
		m.fail(badf("%s is missing", m.vision.key("n_wa_pattern")))
	}
	full := []int{}
	for layer := range depth {
		if pattern == 0 || (layer+1)%pattern == 0 {
			full = append(full, layer)
		}
	}
	v["fullatt_block_indexes"] = full
}
