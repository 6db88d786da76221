package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dynctl/dynctl/internal/model"
)

// imageTokenID stands for rows of images in the models of this section, behind the tokens of
// the tokenizer.
const imageTokenID = 4090

// seeingModel returns a small LLaVA with the given tower.
func seeingModel(tower map[string]any) model.Synthetic {
	return model.Synthetic{
		Family: "llava", Layers: 4, Hidden: 512, Heads: 8, KVHeads: 4, HeadDim: 64, FFN: 1536,
		Vocab: 4096, ContextLen: 16384, DType: "bf16", Tied: true, Seed: 1,
		Images: map[string]any{"vision_config": tower, "image_token_index": imageTokenID},
	}
}

// smallTower is one that encodes an image of 256 rows in a tenth of a second on one core.
func smallTower() map[string]any {
	return map[string]any{"hidden_size": 384, "intermediate_size": 1536, "num_attention_heads": 6, "num_hidden_layers": 8, "image_size": 224, "patch_size": 14}
}

// seeing returns the directory of a synthetic LLaVA with everything that its images need.
func (s *session) seeing(spec model.Synthetic) (string, error) {
	dir, err := s.synthesize(spec)
	if err != nil {
		return "", err
	}
	vision := spec.Images["vision_config"].(map[string]any)
	size := vision["image_size"]
	for name, change := range map[string]func(map[string]any){
		"tokenizer.json": func(m map[string]any) {
			all, _ := m["added_tokens"].([]any)
			for _, t := range all {
				if t.(map[string]any)["content"] == "<image>" {
					return // an earlier run's
				}
			}
			m["added_tokens"] = append(all, map[string]any{
				"id": imageTokenID, "content": "<image>", "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
			})
		},
		"tokenizer_config.json": func(m map[string]any) {
			m["chat_template"] = `{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}` +
				`{% if p.type == 'image' %}<image>{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}{% endfor %} Answer: `
		},
		model.PreprocessorName: func(m map[string]any) {
			m["image_processor_type"], m["processor_class"] = "CLIPImageProcessor", "LlavaProcessor"
			m["size"], m["crop_size"] = map[string]any{"shortest_edge": size}, map[string]any{"height": size, "width": size}
		},
		model.ProcessorName: func(m map[string]any) {
			m["processor_class"], m["patch_size"], m["vision_feature_select_strategy"] = "LlavaProcessor", vision["patch_size"], "default"
		},
	} {
		if err := editJSON(filepath.Join(dir, name), change); err != nil {
			return "", fmt.Errorf("describe the images of a synthetic model: %w", err)
		}
	}
	return dir, nil
}

// editJSON changes the object in a file, an empty one if there is no file.
func editJSON(path string, change func(map[string]any)) error {
	m := map[string]any{}
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	change(m)
	if b, err = json.Marshal(m); err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}
