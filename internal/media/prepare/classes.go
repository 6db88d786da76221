package prepare

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Means and deviations of the towers.
const (
	clipColors = `"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]`
	halfColors = `"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]`
	always     = `"do_convert_rgb": true, "do_resize": true, "do_rescale": true, "rescale_factor": 0.00392156862745098, "do_normalize": true`
)

// classes are the image processors by the name that files give, with the fields that
// files may have and what each one is if it is absent.
var classes = map[string]string{
	"CLIPImageProcessor": `{` + always + `, ` + clipColors + `, "resample": 3,
		"size": {"shortest_edge": 224}, "do_center_crop": true, "crop_size": {"height": 224, "width": 224}}`,
	"SiglipImageProcessor": `{` + always + `, ` + halfColors + `, "resample": 3, "size": {"height": 224, "width": 224}}`,
	"Gemma3ImageProcessor": `{` + always + `, ` + halfColors + `, "resample": 2, "size": {"height": 224, "width": 224},
		"do_pan_and_scan": false, "pan_and_scan_min_crop_size": 0, "pan_and_scan_max_num_crops": 0, "pan_and_scan_min_ratio_to_activate": 0,
		"image_seq_length": 256}`,
	"Idefics3ImageProcessor": `{` + always + `, ` + halfColors + `, "resample": 1, "size": {"longest_edge": 1456},
		"do_image_splitting": true, "max_image_size": {"longest_edge": 364}, "do_pad": true}`,
	"LlavaNextImageProcessor": `{` + always + `, ` + clipColors + `, "resample": 3,
		"size": {"shortest_edge": 224}, "do_center_crop": true, "crop_size": {"height": 224, "width": 224}, "do_pad": true,
		"aspect_ratio_setting": "anyres", "image_grid_pinpoints": [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]}`,
	"Qwen2VLImageProcessor": `{` + always + `, ` + clipColors + `, "resample": 3, "size": {"shortest_edge": 3136, "longest_edge": 1003520},
		"min_pixels": 0, "max_pixels": 0, "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2}`,
}

// sameClass are names of classes that prepare stills as another one does.
var sameClass = map[string]string{
	"CLIPFeatureExtractor":     "CLIPImageProcessor",
	"SmolVLMImageProcessor":    "Idefics3ImageProcessor",
	"Qwen3VLImageProcessor":    "Qwen2VLImageProcessor",
	"Qwen2_5_VLImageProcessor": "Qwen2VLImageProcessor",
}

// harmless are fields that change nothing here: names, what is for videos, and which
// arrays a caller of transformers gets.
var harmless = []string{
	"processor_class", "image_processor_type", "feature_extractor_type", "_valid_processor_keys",
	"video_sampling", "data_format", "input_data_format", "return_tensors", "device", "disable_grouping", "default_to_square",
}

// class returns the name of the class that prepares pictures, and its settings: those of
// the file and, for the rest, the defaults.
func class(f fields, def string) (string, fields) {
	name := f.text("image_processor_type", f.text("feature_extractor_type", def))
	name = strings.TrimSuffix(name, "Fast")
	if same := sameClass[name]; same != "" {
		name = same
	}
	text, ok := classes[name]
	if !ok {
		f.fail("image_processor_type", ErrUnsupported, fmt.Sprintf("%q", name))
		return name, f
	}
	defaults := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(text), &defaults); err != nil {
		f.fail("", ErrConfig, "defaults of "+name+": "+err.Error())
		return name, f
	}
	f.onlyKnown(slices.Concat(harmless, slices.Collect(maps.Keys(defaults)))...)
	settings := fields{file: f.file, raw: defaults, err: f.err}
	maps.Copy(settings.raw, f.raw)
	return name, settings
}
