package model

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/dynctl/dynctl/internal/model/minitok"
)

// Synthetic describes a checkpoint with random weights in the shape of a real one, for
// tests and benchmarks. Zero fields take the default noted beside them.
//
// The weights are scaled so that activations stay near one, attention attends to a few
// positions, logits have a standard deviation of about four, and the next token depends
// on the whole prompt rather than on the last token. The tokens that end a text
// practically never win, so greedy generation runs to its limit.
type Synthetic struct {
	Family  string // model_type of any family, "llama" by default
	Text    string // model_type of the text model inside one that reads images, the family's first by default
	Layers  int    // 2
	Hidden  int    // 64
	Heads   int    // 4
	KVHeads int    // as Heads
	HeadDim int    // Hidden / Heads
	FFN     int    // 3 × Hidden
	Vocab   int    // 512, at least minitok.MinVocab; ids past the tokenizer are padding
	// ContextLen is max_position_embeddings, 2048 by default.
	ContextLen int
	DType      string // "f32" (default), "bf16" or "f16"
	Tied       bool
	Shards     int     // 1: one file without an index
	RopeTheta  float64 // 10000
	// RopeScaling is written as rope_scaling: {"rope_type": "llama3", …}.
	RopeScaling   map[string]any
	AttentionBias bool
	MLPBias       bool // llama only
	// Transformers5 writes config.json in the spelling of transformers 5.
	Transformers5 bool
	// Stacked writes the experts of a layer into one tensor, if the family has that form.
	Stacked bool
	// Images holds the fields of config.json that describe how images are read, such as
	// vision_config. If it is set, the fields of the text model are under text_config.
	Images map[string]any
	// Extra holds further fields of config.json; they override the fields above.
	Extra map[string]any
	Seed  uint64
}

// Qwen3Small returns the shape of Qwen3-0.6B: 1.2 GB of bf16 weights, written in a few
// seconds. Speed does not depend on the values of weights, so it replaces the real model
// in benchmarks.
func Qwen3Small() Synthetic {
	return Synthetic{
		Family: "qwen3", Layers: 28, Hidden: 1024, Heads: 16, KVHeads: 8, HeadDim: 128, FFN: 3072,
		Vocab: 151936, ContextLen: 40960, DType: "bf16", Tied: true, RopeTheta: 1e6,
	}
}

// SmolVLMSmall returns the shape of SmolVLM-256M: a tower of 93 million weights that makes
// 64 rows of a view of 512 × 512 pixels, and a Llama of 135 million.
func SmolVLMSmall() Synthetic {
	return Synthetic{
		Family: "smolvlm", Layers: 30, Hidden: 576, Heads: 9, KVHeads: 3, HeadDim: 64, FFN: 1536,
		Vocab: 49280, ContextLen: 8192, DType: "bf16", RopeTheta: 1e5,
		Images: map[string]any{
			"vision_config": map[string]any{"hidden_size": 768, "num_attention_heads": 12, "image_size": 512, "patch_size": 16},
			"scale_factor":  4, "image_token_id": 49190,
		},
	}
}

func (s Synthetic) withDefaults() Synthetic {
	s.Family = cmp.Or(s.Family, "llama")
	s.Layers = cmp.Or(s.Layers, 2)
	s.Hidden = cmp.Or(s.Hidden, 64)
	s.Heads = cmp.Or(s.Heads, 4)
	s.KVHeads = cmp.Or(s.KVHeads, s.Heads)
	s.HeadDim = cmp.Or(s.HeadDim, s.Hidden/max(s.Heads, 1))
	s.FFN = cmp.Or(s.FFN, 3*s.Hidden)
	s.Vocab = cmp.Or(s.Vocab, 512)
	s.ContextLen = cmp.Or(s.ContextLen, 2048)
	s.DType = cmp.Or(s.DType, "f32")
	s.Shards = cmp.Or(s.Shards, 1)
	s.RopeTheta = cmp.Or(s.RopeTheta, 10000)
	return s
}

// Write puts the checkpoint into dir, which must exist: config.json,
// generation_config.json, the tokenizer files with a chat template, and the
// weights. Equal values write equal bytes on every machine.
func (s Synthetic) Write(dir string) error {
	s = s.withDefaults()
	if err := s.writeFiles(sink(dir)); err != nil {
		return fmt.Errorf("write synthetic %s model: %w", s.Family, err)
	}
	return nil
}

func (s Synthetic) writeFiles(to sink) error {
	tok, err := minitok.Load(s.Vocab)
	if err != nil {
		return err
	}
	files, err := s.smallFiles(tok)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := to.put(name, files[name]); err != nil {
			return err
		}
	}
	config, err := ParseConfig(files[ConfigName])
	if err != nil {
		return err
	}
	w := weightWriter{spec: s, config: config, to: to, known: tok.Size()}
	return w.write()
}

// smallFiles returns all files but the weights.
func (s Synthetic) smallFiles(tok *minitok.Tokenizer) (map[string][]byte, error) {
	files, err := tok.Files(s.ContextLen)
	if err != nil {
		return nil, err
	}
	end, _ := tok.ID(minitok.TurnEnd)
	text, _ := tok.ID(minitok.EndOfText)
	if files[ConfigName], err = s.configJSON(end); err != nil {
		return nil, err
	}
	files[GenerationName], err = marshal(map[string]any{
		"eos_token_id": []uint32{end, text},
		"pad_token_id": text,
	})
	return files, err
}

func (s Synthetic) configJSON(eos uint32) ([]byte, error) {
	dtype, ok := map[string]string{"f32": "float32", "bf16": "bfloat16", "f16": "float16"}[s.DType]
	if !ok {
		return nil, fmt.Errorf("dtype %q is not f32, bf16 or f16", s.DType)
	}
	architecture := ""
	if known := s.family().architectures; known != nil {
		architecture = known[0]
	}
	config := map[string]any{
		"architectures":           []string{architecture},
		"model_type":              s.Family,
		"num_hidden_layers":       s.Layers,
		"hidden_size":             s.Hidden,
		"num_attention_heads":     s.Heads,
		"num_key_value_heads":     s.KVHeads,
		"head_dim":                s.HeadDim,
		"intermediate_size":       s.FFN,
		"vocab_size":              s.Vocab,
		"max_position_embeddings": s.ContextLen,
		"rms_norm_eps":            1e-6,
		"hidden_act":              "silu",
		"attention_bias":          s.AttentionBias,
		"tie_word_embeddings":     s.Tied,
		"eos_token_id":            eos,
		"use_cache":               true,
	}
	if s.Family == "llama" {
		config["mlp_bias"] = s.MLPBias
	}
	if s.family().actField != "" {
		delete(config, "hidden_act")
	}
	if s.Transformers5 {
		rope := map[string]any{"rope_type": "default"}
		maps.Copy(rope, s.RopeScaling)
		rope["rope_theta"] = s.RopeTheta
		config["rope_parameters"] = rope
		config["dtype"] = dtype
	} else {
		config["rope_theta"] = s.RopeTheta
		config["rope_scaling"] = s.RopeScaling
		config["torch_dtype"] = dtype
	}
	maps.Copy(config, s.Extra)
	if s.Images != nil {
		config = s.nested(config)
	}
	return marshal(config)
}

// nested returns the configuration of a model that reads images around that of its text
// model.
func (s Synthetic) nested(text map[string]any) map[string]any {
	known := s.family().architectures
	outer := map[string]any{"architectures": known[max(0, len(known)-1):], "model_type": s.Family, "text_config": text}
	if texts := s.family().texts; texts != nil {
		text["model_type"] = cmp.Or(s.Text, texts[0].modelType)
	} else if name := s.family().inner; name != "" {
		text["model_type"] = name
	}
	maps.Copy(outer, s.Images)
	return outer
}

func (s Synthetic) family() family { return Config{Family: s.Family}.family() }

// naming determines which tensors to write.
func (s Synthetic) naming(c Config) naming {
	n := newNaming(c.family(), nil, nil)
	n.stacked = s.Stacked
	return n
}

func marshal(v any) ([]byte, error) {
	out, err := json.MarshalIndent(v, "", "  ")
	return append(out, '\n'), err
}
