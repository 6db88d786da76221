package prepare

import (
	"errors"
	"strings"
	"testing"
)

const llavaProcessor = `{"processor_class": "LlavaProcessor", "patch_size": 14}`

func TestLoadNamesFileAndField(t *testing.T) {
	for _, c := range []struct {
		name                string
		preprocessor, other string
		file, field         string
		kind                error
	}{
		{"no preprocessor", "", `{}`, "preprocessor_config.json", "", ErrConfig},
		{"no JSON", "{", llavaProcessor, "preprocessor_config.json", "", ErrConfig},
		{"null", "null", llavaProcessor, "preprocessor_config.json", "", ErrConfig},
		{"an array", "{}", "[1]", "processor_config.json", "", ErrConfig},
		{"no family", "{}", "{}", "processor_config.json", "processor_class", ErrUnsupported},
		{"another family", `{"processor_class": "FuyuProcessor"}`, "{}", "processor_config.json", "processor_class", ErrUnsupported},
		{"a class of no family", `{"image_processor_type": "FuyuImageProcessor"}`, llavaProcessor, "preprocessor_config.json", "image_processor_type", ErrUnsupported},
		{"a class of another family", `{"image_processor_type": "Qwen2VLImageProcessor"}`, llavaProcessor, "preprocessor_config.json", "image_processor_type", ErrUnsupported},
		{"CLIP's class for tiles", `{"image_processor_type": "CLIPImageProcessor"}`, `{"processor_class": "SmolVLMProcessor"}`, "preprocessor_config.json", "image_processor_type", ErrUnsupported},
		{"CLIP's class for Gemma", `{"image_processor_type": "CLIPImageProcessor"}`, `{"processor_class": "Gemma3Processor"}`, "preprocessor_config.json", "image_processor_type", ErrUnsupported},
		{"CLIP's class for LLaVA-1.6", `{"image_processor_type": "CLIPImageProcessor"}`, `{"processor_class": "LlavaNextProcessor", "patch_size": 14}`, "preprocessor_config.json", "image_processor_type", ErrUnsupported},
		{"CLIP's class for Qwen", `{"image_processor_type": "CLIPImageProcessor"}`, `{"processor_class": "Qwen2VLProcessor"}`, "preprocessor_config.json", "image_processor_type", ErrUnsupported},
		{"a size of 0", `{"size": {"shortest_edge": 0}}`, llavaProcessor, "preprocessor_config.json: size", "shortest_edge", ErrConfig},
		{"an unknown field", `{"do_flip": true}`, llavaProcessor, "preprocessor_config.json", "do_flip", ErrUnsupported},
		{"an unknown field of the processor", "{}", `{"processor_class": "LlavaProcessor", "patch_size": 14, "tiles": 2}`, "processor_config.json", "tiles", ErrUnsupported},
		{"an unknown field of Idefics'", "{}", `{"processor_class": "Idefics3Processor", "tiles": 2}`, "processor_config.json", "tiles", ErrUnsupported},
		{"an unknown field of Gemma's", "{}", `{"processor_class": "Gemma3Processor", "tiles": 2}`, "processor_config.json", "tiles", ErrUnsupported},
		{"an unknown field of Qwen's", "{}", `{"processor_class": "Qwen2VLProcessor", "tiles": 2}`, "processor_config.json", "tiles", ErrUnsupported},
		{"a text for a number", `{"resample": "bicubic"}`, llavaProcessor, "preprocessor_config.json", "resample", ErrConfig},
		{"a box filter", `{"resample": 4}`, llavaProcessor, "preprocessor_config.json", "resample", ErrUnsupported},
		{"no filter", `{"resample": 9}`, llavaProcessor, "preprocessor_config.json", "resample", ErrConfig},
		{"no resizing", `{"do_resize": false}`, llavaProcessor, "preprocessor_config.json", "do_resize", ErrUnsupported},
		{"tiles of the stored size", `{"do_resize": false}`, `{"processor_class": "Idefics3Processor"}`, "preprocessor_config.json", "do_resize", ErrUnsupported},
		{"patches of the stored size", `{"do_resize": false}`, `{"processor_class": "Qwen2VLProcessor"}`, "preprocessor_config.json", "do_resize", ErrUnsupported},
		{"LLaVA-1.6 without padding", `{"do_pad": false}`, `{"processor_class": "LlavaNextProcessor", "patch_size": 14}`, "preprocessor_config.json", "do_pad", ErrUnsupported},
		{"two means", `{"image_mean": [0.5, 0.5]}`, llavaProcessor, "preprocessor_config.json", "image_mean", ErrConfig},
		{"a deviation of 0", `{"image_std": [0.5, 0, 0.5]}`, llavaProcessor, "preprocessor_config.json", "image_std", ErrConfig},
		{"a factor of 0", `{"rescale_factor": 0}`, llavaProcessor, "preprocessor_config.json", "rescale_factor", ErrConfig},
		{"a size of text", `{"size": "big"}`, llavaProcessor, "preprocessor_config.json", "size", ErrConfig},
		{"a negative size", `{"size": -1}`, llavaProcessor, "preprocessor_config.json", "size", ErrConfig},
		{"a huge size", `{"size": {"shortest_edge": 1000000}}`, llavaProcessor, "preprocessor_config.json: size", "shortest_edge", ErrConfig},
		{"an unknown size", `{"size": {"max_height": 9}}`, llavaProcessor, "preprocessor_config.json: size", "max_height", ErrUnsupported},
		{"half a size", `{"size": {"height": 9}}`, llavaProcessor, "preprocessor_config.json", "size", ErrConfig},
		{"a longest edge for CLIP", `{"size": {"longest_edge": 9}}`, llavaProcessor, "preprocessor_config.json", "size", ErrUnsupported},
		{"half a crop", `{"crop_size": {"height": 9}}`, llavaProcessor, "preprocessor_config.json", "crop_size", ErrConfig},
		{"no fixed size", `{"do_center_crop": false}`, llavaProcessor, "preprocessor_config.json", "size", ErrUnsupported},
		{"no patch size", "{}", `{"processor_class": "LlavaProcessor"}`, "processor_config.json", "patch_size", ErrConfig},
		{"a patch larger than the view", "{}", `{"processor_class": "LlavaProcessor", "patch_size": 300}`, "processor_config.json", "patch_size", ErrConfig},
		{"another strategy", "{}", `{"processor_class": "LlavaProcessor", "patch_size": 14, "vision_feature_select_strategy": "cls"}`, "processor_config.json", "vision_feature_select_strategy", ErrUnsupported},
		{"another image token", "{}", `{"processor_class": "LlavaProcessor", "patch_size": 14, "image_token": "<img>"}`, "processor_config.json", "image_token", ErrUnsupported},
		{"pan and scan", `{"do_pan_and_scan": true}`, `{"processor_class": "Gemma3Processor"}`, "preprocessor_config.json", "do_pan_and_scan", ErrUnsupported},
		{"tiles by height", `{"size": {"height": 9, "width": 9}}`, `{"processor_class": "Idefics3Processor"}`, "preprocessor_config.json", "size", ErrUnsupported},
		{"tiles of no edge", `{"max_image_size": {"height": 9, "width": 9}}`, `{"processor_class": "Idefics3Processor"}`, "preprocessor_config.json", "max_image_size", ErrUnsupported},
		{"too many tiles", `{"max_image_size": {"longest_edge": 2}}`, `{"processor_class": "Idefics3Processor"}`, "preprocessor_config.json", "max_image_size", ErrConfig},
		{"no tokens", `{}`, `{"processor_class": "Idefics3Processor", "image_seq_len": 0}`, "processor_config.json", "image_seq_len", ErrConfig},
		{"no pixels", `{"size": {"shortest_edge": 9, "longest_edge": 8}}`, `{"processor_class": "Qwen2VLProcessor"}`, "preprocessor_config.json", "size", ErrConfig},
		{"fewer pixels than a block", `{"size": {"shortest_edge": 9, "longest_edge": 700}}`, `{"processor_class": "Qwen2VLProcessor"}`, "preprocessor_config.json", "size", ErrConfig},
		{"half of the pixels", `{"size": {"longest_edge": 99999}}`, `{"processor_class": "Qwen2VLProcessor"}`, "preprocessor_config.json", "size", ErrConfig},
		{"a grid of half tiles", `{"image_grid_pinpoints": [[224, 300]]}`, `{"processor_class": "LlavaNextProcessor", "patch_size": 14}`, "preprocessor_config.json", "image_grid_pinpoints", ErrConfig},
		{"a grid of one number", `{"image_grid_pinpoints": [[224]]}`, `{"processor_class": "LlavaNextProcessor", "patch_size": 14}`, "preprocessor_config.json", "image_grid_pinpoints", ErrConfig},
		{"a grid of no height", `{"image_grid_pinpoints": [[0, 224]]}`, `{"processor_class": "LlavaNextProcessor", "patch_size": 14}`, "preprocessor_config.json", "image_grid_pinpoints", ErrConfig},
		{"a grid of huge tiles", `{"image_grid_pinpoints": [[22400, 224]]}`, `{"processor_class": "LlavaNextProcessor", "patch_size": 14}`, "preprocessor_config.json", "image_grid_pinpoints", ErrConfig},
		{"a size of text beside pixels", `{"size": "big", "min_pixels": 3136, "max_pixels": 50176}`, `{"processor_class": "Qwen2VLProcessor"}`, "preprocessor_config.json", "size", ErrConfig},
		{"a grid of nothing", `{"image_grid_pinpoints": []}`, `{"processor_class": "LlavaNextProcessor", "patch_size": 14}`, "preprocessor_config.json", "image_grid_pinpoints", ErrConfig},
		{"another grid", `{"aspect_ratio_setting": "square"}`, `{"processor_class": "LlavaNextProcessor", "patch_size": 14}`, "preprocessor_config.json", "aspect_ratio_setting", ErrUnsupported},
		{"tiles that are cropped", `{"crop_size": 200, "image_grid_pinpoints": [[224, 448]]}`, `{"processor_class": "LlavaNextProcessor", "patch_size": 14}`, "preprocessor_config.json", "crop_size", ErrUnsupported},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := Files{Processor: []byte(c.other)}
			if c.preprocessor != "" {
				files.Preprocessor = []byte(c.preprocessor)
			}
			_, err := Load(files)
			var field *FieldError
			if !errors.As(err, &field) || !errors.Is(err, c.kind) || field.File != c.file || field.Field != c.field {
				t.Fatalf("%v, want %v of %q in %s", err, c.kind, c.field, c.file)
			}
			if text := err.Error(); !strings.Contains(text, c.file) || !strings.Contains(text, c.field) {
				t.Errorf("%q names neither file nor field", text)
			}
		})
	}
}

func TestTilesNeedATowerOfPatches(t *testing.T) {
	_, err := Load(Files{
		Preprocessor: []byte(`{}`),
		Config:       []byte(`{"model_type": "idefics3", "scale_factor": 8, "vision_config": {"image_size": 64, "patch_size": 16}}`),
	})
	var field *FieldError
	if !errors.As(err, &field) || field.File != "config.json" || field.Field != "scale_factor" || !errors.Is(err, ErrConfig) {
		t.Errorf("%v", err)
	}
}

// What older files leave out is in config.json, or a default of the class.
func TestLoadFillsIn(t *testing.T) {
	for _, c := range []struct {
		name   string
		files  [3]string
		tokens int
	}{
		{"patch size in config.json", [3]string{`{"size": 336, "crop_size": 336}`, "", `{"model_type": "llava", "vision_config": {"patch_size": 14, "model_type": "clip_vision_model"}}`}, 576},
		{"a tower without a class token", [3]string{`{"size": 336, "crop_size": 336}`, "", `{"model_type": "llava", "vision_feature_select_strategy": "full", "vision_config": {"patch_size": 14, "model_type": "siglip_vision_model"}}`}, 576},
		{"all features", [3]string{`{"size": 336, "crop_size": 336}`, "", `{"model_type": "llava", "vision_feature_select_strategy": "full", "vision_config": {"patch_size": 14}}`}, 577},
		{"the class named by the preprocessor", [3]string{`{"processor_class": "LlavaProcessor"}`, `{"patch_size": 14}`, ""}, 256},
		{"one file in the other", [3]string{"", `{"processor_class": "LlavaProcessor", "patch_size": 14, "image_processor": {"image_processor_type": "CLIPImageProcessorFast", "anything": null, "size": {"shortest_edge": 28}, "crop_size": {"height": 28, "width": 28}}}`, ""}, 4},
		{"an older name", [3]string{`{"feature_extractor_type": "CLIPFeatureExtractor"}`, llavaProcessor, ""}, 256},
		{"nulls", [3]string{`{"do_resize": null, "size": null, "anything": null}`, llavaProcessor, ""}, 256},
		{"pooled tokens", [3]string{`{}`, `{"processor_class": "Gemma3Processor"}`, `{"mm_tokens_per_image": 64}`}, 64},
		{"pooled tokens by default", [3]string{`{"size": 96}`, `{"processor_class": "Gemma3Processor"}`, ""}, 256},
		{"a size to the pixel", [3]string{`{"min_pixels": 784, "max_pixels": 784}`, `{"processor_class": "Qwen2VLProcessor"}`, ""}, 1},
		{"the largest view", [3]string{`{"size": 16384, "crop_size": 8192}`, `{"processor_class": "LlavaProcessor", "patch_size": 4096}`, ""}, 4},
		{"the most tokens", [3]string{`{"size": 256, "crop_size": {"height": 256, "width": 512}}`, `{"processor_class": "LlavaProcessor", "patch_size": 1}`, ""}, 1 << 17},
		{"tokens of a tile", [3]string{`{"do_image_splitting": false}`, "", `{"model_type": "smolvlm", "scale_factor": 4, "vision_config": {"image_size": 512, "patch_size": 16}}`}, 64},
		{"tokens of a tile without a factor", [3]string{`{"do_image_splitting": false}`, "", `{"model_type": "idefics3", "vision_config": {"image_size": 112, "patch_size": 14}}`}, 16},
		{"tokens of a tile of a tower by default", [3]string{`{"do_image_splitting": false}`, "", `{"model_type": "idefics3", "scale_factor": 7}`}, 1},
		{"tokens of a tile by default", [3]string{`{"do_image_splitting": false}`, `{"processor_class": "Idefics3Processor"}`, ""}, 169},
	} {
		var contents [3][]byte
		for i, f := range c.files {
			if f != "" {
				contents[i] = []byte(f)
			}
		}
		p, err := Load(Files{contents[0], contents[1], contents[2]})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if plan, err := p.Plan(30, 40); plan.Tokens != c.tokens || err != nil {
			t.Errorf("%s: %d tokens, %v, want %d", c.name, plan.Tokens, err, c.tokens)
		}
	}
}

// Without rescaling and normalizing, the numbers are the bytes.
func TestStepsCanBeOff(t *testing.T) {
	const size = `"size": {"height": 5, "width": 6}, "image_processor_type": "SiglipImageProcessor"`
	m := sample(6, 5, 1)
	for _, c := range []struct {
		steps string
		want  func(v float32) float32
	}{
		{`"do_rescale": false, "do_normalize": false`, func(v float32) float32 { return v }},
		{`"do_rescale": false`, func(v float32) float32 { return (v - 0.5) / 0.5 }},
		{`"do_normalize": false, "rescale_factor": 0.5`, func(v float32) float32 { return v / 2 }},
	} {
		p, err := Load(Files{
			Preprocessor: []byte("{" + size + "," + c.steps + "}"),
			Processor:    []byte(`{"processor_class": "LlavaProcessor", "patch_size": 2}`),
		})
		if err != nil {
			t.Fatal(err)
		}
		in, err := p.Prepare(m)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range in.Views[0].Pixels {
			if want := c.want(float32(m.Pix[i%30*3+i/30])); v != want {
				t.Fatalf("%s: number %d is %v, want %v", c.steps, i, v, want)
			}
		}
	}
}

func TestEveryClassHasDefaults(t *testing.T) {
	for name := range classes {
		var err error
		got, settings := class(parse("f", []byte(`{"image_processor_type": "`+name+`"}`), &err), "")
		if err != nil || got != name || len(settings.raw) < 8 {
			t.Errorf("%s: %v, %d settings", name, err, len(settings.raw))
		}
	}
	for name, same := range sameClass {
		if classes[same] == "" {
			t.Errorf("%s stands for %s, which does not exist", name, same)
		}
	}
	for _, f := range families {
		if classes[f.class] == "" {
			t.Errorf("the default class %s does not exist", f.class)
		}
	}
}

func FuzzLoad(f *testing.F) {
	for _, c := range cases(f) {
		f.Add([]byte(c.Preprocessor), []byte(c.Processor), []byte("{}"), 40, 30)
	}
	f.Fuzz(func(t *testing.T, preprocessor, processor, config []byte, w, h int) {
		p, err := Load(Files{preprocessor, processor, config})
		var field *FieldError
		if err != nil {
			if !errors.As(err, &field) {
				t.Errorf("%v is no FieldError", err)
			}
			return
		}
		plan, err := p.Plan(w, h)
		if err != nil {
			if !errors.Is(err, ErrPicture) {
				t.Errorf("%v matches no error of this package", err)
			}
			return
		}
		if plan.Tokens < 1 || plan.W < 1 || plan.H < 1 || plan.Text == "" {
			t.Errorf("%d tokens, %d x %d pixels, %+v", plan.Tokens, plan.W, plan.H, plan.Grid)
		}
		if n := max(plan.Views, 1) * plan.W * plan.H; n < 1<<16 && w < 300 && h < 300 {
			if in, err := p.Prepare(sample(w, h, 1)); err != nil || in.Plan != plan {
				t.Errorf("%v, plan %+v", err, plan)
			}
		}
	})
}
