package modeltest

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/gguf/gguftest"
)

// MmprojForm says how [VisionGGUF] writes a mmproj file.
type MmprojForm struct {
	Text, Vision gguf.Type // of matrices
	// Swapped exchanges the names of the linear layers of MLPs, as older writers do.
	Swapped bool
	// Merged puts queries, keys and values into one tensor.
	Merged bool
	// Change changes the keys before they are written; values are those of
	// [gguftest.Builder.Key].
	Change func(keys map[string]any)
}

// VisionGGUF writes the checkpoint in dir, which reads images, as the usual converters do: a
// GGUF file of its text model and a mmproj file. The folder holds nothing else.
func VisionGGUF(t testing.TB, dir string, form MmprojForm) (folder string) {
	t.Helper()
	folder = t.TempDir()
	textFile(t, dir, func(string) gguf.Type { return form.Text }).Write(t, filepath.Join(folder, "model.gguf"))
	Mmproj(t, dir, form).Write(t, filepath.Join(folder, "mmproj-model.gguf"))
	return folder
}

// Mmproj is the mmproj file of the checkpoint in dir.
func Mmproj(t testing.TB, dir string, form MmprojForm) *gguftest.Builder {
	t.Helper()
	m := open(t, dir)
	w := mmprojWriter{
		t: t, m: m, form: form, config: readJSON(t, filepath.Join(dir, model.ConfigName)),
		prepare: readJSON(t, filepath.Join(dir, model.PreprocessorName)), keys: map[string]any{},
	}
	w.vision, _ = w.config["vision_config"].(map[string]any)
	w.writeKeys()
	if form.Change != nil {
		form.Change(w.keys)
	}
	var b gguftest.Builder
	for _, name := range slices.Sorted(maps.Keys(w.keys)) {
		b.Key(name, w.keys[name])
	}
	w.write(&b)
	return &b
}

type mmprojWriter struct {
	t                       testing.TB
	m                       *model.Model
	form                    MmprojForm
	config, vision, prepare map[string]any
	keys                    map[string]any
}

// writeKeys makes the keys of the converters: that of LLaVA is older than the others.
func (w *mmprojWriter) writeKeys() {
	v, k := w.m.Config().Vision, w.keys
	family := w.m.Config().Family
	kind := map[string]string{"smolvlm": "idefics3", "idefics3": "idefics3", "gemma3_text": "gemma3", "llava": "mlp", "llava_next": "mlp", "qwen2_vl": "qwen2vl_merger", "qwen2_5_vl": "qwen2.5vl_merger"}[family]
	maps.Copy(k, map[string]any{
		"general.architecture": "clip", "general.type": "mmproj", "clip.has_vision_encoder": true, "clip.projector_type": kind,
		"clip.vision.projection_dim": uint32(w.m.Config().Hidden), "clip.vision.patch_size": uint32(v.PatchSize), "clip.vision.image_size": uint32(v.ImageSize),
		"clip.vision.embedding_length": uint32(v.Hidden), "clip.vision.feed_forward_length": uint32(v.FFN), "clip.vision.attention.head_count": uint32(v.Heads),
		"clip.vision.block_count": uint32(v.Layers), "clip.vision.attention.layer_norm_epsilon": float32(v.NormEps),
		"clip.vision.image_mean": w.colors("image_mean"), "clip.vision.image_std": w.colors("image_std"),
	})
	switch kind {
	case "idefics3":
		k["clip.use_gelu"] = true
		k["clip.vision.projector.scale_factor"] = uint32(v.Projector.Factor)
		k["clip.vision.preproc_image_size"] = uint32(w.prepare["size"].(map[string]any)["longest_edge"].(float64))
	case "gemma3":
		k["clip.use_gelu"] = true
		k["clip.vision.projector.scale_factor"] = uint32(v.Projector.Factor)
	case "mlp":
		delete(k, "general.type")
		maps.Copy(k, map[string]any{
			"clip.has_text_encoder": false, "clip.has_llava_projector": true, "clip.use_gelu": false,
			"clip.vision.projection_dim": uint32(768), // of CLIP
			"clip.vision.feature_layer":  []int32{int32(v.Layers)},
		})
		if list, ok := w.prepare["image_grid_pinpoints"].([]any); ok {
			var flat []int32
			for _, pair := range list {
				for _, n := range pair.([]any) {
					flat = append(flat, int32(n.(float64)))
				}
			}
			k["clip.vision.image_grid_pinpoints"], k["clip.vision.mm_patch_merge_type"] = flat, "spatial_unpad"
			k["clip.vision.image_aspect_ratio"] = "anyres"
		}
	case "qwen2vl_merger":
		k["clip.vision.image_size"] = uint32(560)
		k["clip.vision.feed_forward_length"] = uint32(w.m.Config().Hidden) // as the converter has it
	case "qwen2.5vl_merger":
		k["clip.vision.image_size"], k["clip.use_silu"] = uint32(560), true
		full := w.vision["fullatt_block_indexes"].([]any)
		k["clip.vision.n_wa_pattern"] = uint32(full[0].(float64)) + 1
		k["clip.vision.window_size"] = uint32(w.vision["window_size"].(float64)) // left out for 112
	}
}

func (w *mmprojWriter) colors(name string) (out []float32) {
	for _, v := range w.prepare[name].([]any) {
		out = append(out, float32(v.(float64)))
	}
	return out
}

// write adds the tensors.
func (w *mmprojWriter) write(b *gguftest.Builder) {
	for _, spec := range w.m.Tensors() {
		if !spec.Role.Vision() {
			continue
		}
		v, name := values(w.t, w.m, spec.Name), mmprojName(spec.Name)
		switch {
		case len(spec.Shape) == 5:
			w.frames(b, v, spec.Shape)
		case strings.Contains(name, "attn_qkv") && !w.form.Merged:
			n := len(v) / 3
			shape := append([]int{spec.Shape[0] / 3}, spec.Shape[1:]...)
			for i, part := range []string{"attn_q.", "attn_k.", "attn_v."} {
				w.tensor(b, strings.Replace(name, "attn_qkv.", part, 1), shape, v[i*n:(i+1)*n])
			}
		case w.form.Merged && (strings.Contains(name, ".attn_k.") || strings.Contains(name, ".attn_v.")):
		case w.form.Merged && strings.Contains(name, ".attn_q."):
			for _, part := range []string{"k_proj", "v_proj"} {
				v = append(v, values(w.t, w.m, strings.Replace(spec.Name, "q_proj", part, 1))...)
			}
			w.tensor(b, strings.Replace(name, "attn_q.", "attn_qkv.", 1), append([]int{3 * spec.Shape[0]}, spec.Shape[1:]...), v)
		default:
			if strings.HasSuffix(name, "soft_emb_norm.weight") {
				for i := range v {
					v[i]++
				}
			}
			if w.form.Swapped {
				name = strings.NewReplacer("ffn_up", "ffn_down", "ffn_down", "ffn_up").Replace(name)
			}
			w.tensor(b, name, spec.Shape, v)
		}
	}
}

// frames writes a tensor for each frame.
func (w *mmprojWriter) frames(b *gguftest.Builder, v []float32, shape []int) {
	size := shape[3] * shape[4]
	for frame, name := range []string{"v.patch_embd.weight", "v.patch_embd.weight.1"} {
		var own []float32
		for at := frame * size; at < len(v); at += 2 * size {
			own = append(own, v[at:at+size]...)
		}
		w.tensor(b, name, []int{shape[0], shape[1], shape[3], shape[4]}, own)
	}
}

// tensor writes one. Patches and positions are never quantized, and neither are rows that are
// no whole blocks.
func (w *mmprojWriter) tensor(b *gguftest.Builder, name string, shape []int, v []float32) {
	kind := gguf.F32
	if len(shape) > 1 {
		kind = w.form.Vision
	}
	plain := strings.Contains(name, "patch_embd") || strings.Contains(name, "position_embd") || strings.Contains(name, "input_projection")
	if kind.BlockWeights() > 1 && (plain || shape[len(shape)-1]%kind.BlockWeights() != 0) {
		kind = gguf.F16
	}
	b.Tensor(name, kind, shape, gguftest.Quantize(kind, v))
}

// mmprojName spells a tensor's name as mmproj files do.
func mmprojName(name string) string {
	for _, root := range []string{"vision_tower.vision_model.", "model.vision_model.", "visual."} {
		if rest, ok := strings.CutPrefix(name, root); ok {
			name = "v." + rest
		}
	}
	for _, r := range [][2]string{
		{"embeddings.patch_embedding", "patch_embd"}, {"patch_embed.proj", "patch_embd"}, {"embeddings.position_embedding", "position_embd"},
		{"embeddings.class_embedding", "class_embd"}, {"pre_layrnorm", "pre_ln"}, {"post_layernorm", "post_ln"}, {"encoder.layers.", "blk."}, {"v.blocks.", "v.blk."},
		{"layer_norm1", "ln1"}, {"layer_norm2", "ln2"}, {".norm1.", ".ln1."}, {".norm2.", ".ln2."},
		{"self_attn.q_proj", "attn_q"}, {"self_attn.k_proj", "attn_k"}, {"self_attn.v_proj", "attn_v"}, {"self_attn.out_proj", "attn_out"},
		{"attn.qkv", "attn_qkv"}, {"attn.proj", "attn_out"},
		{"mlp.fc1", "ffn_up"}, {"mlp.fc2", "ffn_down"}, {"mlp.up_proj", "ffn_up"}, {"mlp.gate_proj", "ffn_gate"}, {"mlp.down_proj", "ffn_down"},
		{"v.merger.ln_q", "v.post_ln"}, {"v.merger.mlp.", "mm."}, {"model.connector.modality_projection.proj", "mm.model.fc"},
		{"multi_modal_projector.linear_1", "mm.0"}, {"multi_modal_projector.linear_2", "mm.2"}, {"image_newline", "model.image_newline"},
		{"multi_modal_projector.mm_soft_emb_norm", "mm.soft_emb_norm"}, {"multi_modal_projector.mm_input_projection_weight", "mm.input_projection.weight"},
	} {
		name = strings.Replace(name, r[0], r[1], 1)
	}
	if strings.Contains(name, "proj.") || strings.Contains(name, "layer") || strings.Contains(name, "merger") {
		panic(fmt.Sprintf("modeltest: no mmproj name for %s", name)) // a family that this file does not know yet
	}
	return name
}

// Sighted generates the checkpoint of [Vision] with everything that images need: the tokens that
// stand for them, a chat template, and preprocessor_config.json.
func Sighted(t testing.TB, family string) (dir string) {
	t.Helper()
	const first = 2080 // token behind those of the tokenizer
	spec := Vision()[family]
	spec.Vocab, spec.ContextLen, spec.DType = 2100, 2048, ""
	delete(spec.Images, "image_token_index")
	spec.Images["image_token_id"] = first
	if family == "gemma3_text" {
		spec.Extra = map[string]any{"query_pre_attn_scalar": 8, "sliding_window": 20} // GGUF files hold a head's size
	}
	clip := map[string]any{"image_mean": []float64{0.48145466, 0.4578275, 0.40821073}, "image_std": []float64{0.26862954, 0.26130258, 0.27577711}}
	half := map[string]any{"image_mean": []float64{0.5, 0.5, 0.5}, "image_std": []float64{0.5, 0.5, 0.5}}
	llava := map[string]any{"size": map[string]any{"shortest_edge": 70}, "crop_size": map[string]any{"height": 70, "width": 70}}
	// Of Qwen's models the bounds of published checkpoints, which files do not hold.
	qwen := map[string]any{"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 4, "merge_size": 2, "temporal_patch_size": 2, "min_pixels": 3136, "max_pixels": 12845056}
	tiles := map[string]any{"image_processor_type": "Idefics3ImageProcessor", "size": map[string]any{"longest_edge": 48}, "max_image_size": map[string]any{"longest_edge": 24}}
	tokens := []string{"<image>", "<fake_token_around_image>"} // the names of tiles are plain text here
	about := map[string]struct {
		processor string
		place     string // of an image in a prompt
		tokens    []string
		fields    []map[string]any
	}{
		"smolvlm":     {"SmolVLMProcessor", "<image>", tokens, []map[string]any{tiles, half}},
		"idefics3":    {"Idefics3Processor", "<image>", tokens, []map[string]any{tiles, half}},
		"llava":       {"LlavaProcessor", "<image>", []string{"<image>"}, []map[string]any{llava, clip, {"image_processor_type": "CLIPImageProcessor"}}},
		"llava_next":  {"LlavaNextProcessor", "<image>", []string{"<image>"}, []map[string]any{llava, clip, {"image_processor_type": "LlavaNextImageProcessor", "image_grid_pinpoints": [][]int{{70, 140}, {140, 70}}}}},
		"gemma3_text": {"Gemma3Processor", "<start_of_image>", []string{"<image_soft_token>", "<start_of_image>", "<end_of_image>"}, []map[string]any{half, {"image_processor_type": "Gemma3ImageProcessor", "size": map[string]any{"height": 24, "width": 24}}}},
		"qwen2_vl":    {"Qwen2VLProcessor", "<|image_pad|>", []string{"<|image_pad|>"}, []map[string]any{qwen, clip}},
		"qwen2_5_vl":  {"Qwen2_5_VLProcessor", "<|image_pad|>", []string{"<|image_pad|>"}, []map[string]any{qwen, clip}},
	}[family]
	dir = Generate(t, spec)
	prepare := map[string]any{"processor_class": about.processor}
	for _, fields := range about.fields {
		maps.Copy(prepare, fields)
	}
	writeJSON(t, filepath.Join(dir, model.PreprocessorName), prepare)
	tokenizer := readJSON(t, filepath.Join(dir, model.TokenizerName))
	for i, text := range about.tokens {
		tokenizer["added_tokens"] = append(tokenizer["added_tokens"].([]any), map[string]any{
			"id": first + i, "content": text, "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
		})
	}
	writeJSON(t, filepath.Join(dir, model.TokenizerName), tokenizer)
	config := readJSON(t, filepath.Join(dir, model.TokenizerConfigName))
	config["chat_template"] = `{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}` +
		`{% if p.type == 'image' %}` + about.place + `{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}{% endfor %} Answer: `
	writeJSON(t, filepath.Join(dir, model.TokenizerConfigName), config)
	return dir
}

func writeJSON(t testing.TB, path string, content map[string]any) {
	t.Helper()
	raw, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, raw)
}
