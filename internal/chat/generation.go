package chat

import (
	"fmt"
	"math"

	"github.com/dynctl/dynctl/internal/jinja"
)

// GenerationDefaults holds the sampling parameters of generation_config.json. A nil field
// is not set in the file.
type GenerationDefaults struct {
	Temperature       *float64
	TopP              *float64
	TopK              *int
	MinP              *float64
	RepetitionPenalty *float64
	DoSample          *bool // false asks for greedy decoding
}

type generationConfig struct {
	eos      []uint32
	defaults GenerationDefaults
}

func readGenerationConfig(files Files) (generationConfig, error) {
	var g generationConfig
	d, err := readObject(files, GenerationConfigFile)
	if d == nil || err != nil {
		return g, err
	}
	if g.eos, err = readEOS(d, GenerationConfigFile); err != nil {
		return g, err
	}
	for name, to := range map[string]**float64{
		"temperature": &g.defaults.Temperature, "top_p": &g.defaults.TopP, "min_p": &g.defaults.MinP,
		"repetition_penalty": &g.defaults.RepetitionPenalty,
	} {
		if v, _ := d.Get(name); v != nil {
			f, ok := number(v)
			if !ok {
				return g, fmt.Errorf("%w: %s: %s is not a number", ErrFile, GenerationConfigFile, name)
			}
			*to = &f
		}
	}
	if v, _ := d.Get("top_k"); v != nil {
		f, ok := number(v)
		if !ok || f != math.Trunc(f) || math.Abs(f) > math.MaxInt32 {
			return g, fmt.Errorf("%w: %s: top_k is not a whole number", ErrFile, GenerationConfigFile)
		}
		k := int(f)
		g.defaults.TopK = &k
	}
	if v, _ := d.Get("do_sample"); v != nil {
		b, ok := v.(bool)
		if !ok {
			return g, fmt.Errorf("%w: %s: do_sample is not true or false", ErrFile, GenerationConfigFile)
		}
		g.defaults.DoSample = &b
	}
	return g, nil
}

func number(v jinja.Value) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

// readEOS reads eos_token_id, a number or a list of numbers.
func readEOS(d *jinja.Dict, file string) ([]uint32, error) {
	v, _ := d.Get("eos_token_id")
	var items []jinja.Value
	switch v := v.(type) {
	case nil:
		return nil, nil
	case *jinja.List:
		for i := range v.Len() {
			items = append(items, v.At(i))
		}
	default:
		items = []jinja.Value{v}
	}
	var ids []uint32
	for _, item := range items {
		n, ok := item.(int64)
		if ok && n == -1 { // "none" in some files
			continue
		}
		if !ok || n < 0 || n > math.MaxUint32 {
			return nil, fmt.Errorf("%w: %s: eos_token_id is not a token id or a list of them", ErrFile, file)
		}
		ids = append(ids, uint32(n))
	}
	return ids, nil
}

type modelConfig struct {
	eos     []uint32
	context int
}

// readModelConfig reads the few fields of config.json that matter for text. A multimodal
// model has them one level down, in its text part.
func readModelConfig(files Files) (modelConfig, error) {
	var m modelConfig
	d, err := readObject(files, ModelConfigFile)
	if d == nil || err != nil {
		return m, err
	}
	levels := []*jinja.Dict{d}
	if v, _ := d.Get("text_config"); v != nil {
		if text, ok := v.(*jinja.Dict); ok {
			levels = append(levels, text)
		}
	}
	for _, d := range levels {
		if m.eos == nil {
			if m.eos, err = readEOS(d, ModelConfigFile); err != nil {
				return m, err
			}
		}
		if v, _ := d.Get("max_position_embeddings"); m.context == 0 {
			if n, ok := v.(int64); ok && n > 0 && n <= math.MaxInt32 {
				m.context = int(n)
			}
		}
	}
	return m, nil
}
