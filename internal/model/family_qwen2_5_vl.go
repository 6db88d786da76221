package model

import "slices"

// qwen25VL covers Qwen2.5-VL. Its tower differs from that of Qwen2-VL: norms without mean and
// bias, gated MLPs, and layers whose patches attend to those of their window alone.
func qwen25VL() family {
	fam := qwen2VL()
	fam.modelType, fam.architectures = "qwen2_5_vl", []string{"Qwen2_5_VLForConditionalGeneration"}
	fam.inner = "qwen2_5_vl_text"
	vision := *fam.vision
	vision.read = readQwen25Vision
	vision.names = withNames(qwenTowerNames("mlp.up_proj", "mlp.down_proj"), map[Role]string{
		RoleVisionGate:     "tower.blocks.%d.mlp.gate_proj.weight",
		RoleVisionGateBias: "tower.blocks.%d.mlp.gate_proj.bias",
	})
	fam.vision = &vision
	return fam
}

func readQwen25Vision(f fields, c *Config) *Vision {
	t, v := readQwenTower(f, c)
	v.Hidden = t.size("hidden_size", 3584, maxWidth)
	v.FFN = t.size("intermediate_size", 3420, maxWidth)
	v.RMSNorm, v.Gated, v.Act = true, true, SiLU
	if act := t.text("hidden_act", string(SiLU)); act != string(SiLU) {
		t.fail(ErrUnsupported, "hidden_act", "%q is unknown; known is %s", act, SiLU)
	}
	checkQwenTower(t, "out_hidden_size", c, v)
	full := []int{7, 15, 23, 31}
	if t.has("fullatt_block_indexes") {
		full = t.layers("fullatt_block_indexes")
	}
	pixels := t.size("window_size", 112, maxWidth)
	if *t.err != nil {
		return v
	}
	v.Window = pixels / v.Projector.Factor / v.PatchSize * v.Projector.Factor
	v.Windowed = layersWhere(v.Layers, func(layer int) bool { return !slices.Contains(full, layer) })
	if v.Window == 0 {
		t.fail(ErrConfig, "window_size", "%d pixels are less than the %d × %d patches of %d of a row", pixels, v.Projector.Factor, v.Projector.Factor, v.PatchSize)
	}
	return v
}
