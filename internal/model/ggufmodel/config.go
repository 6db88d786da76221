package ggufmodel

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/model/gguf"
)

var (
	// ErrConfig is returned when the keys of a model are missing or contradict each
	// other.
	ErrConfig = errors.New("invalid GGUF model")
	// ErrUnsupported is returned when a file is well formed but asks for something
	// that is not known.
	ErrUnsupported = errors.New("unsupported GGUF model")
)

// converter makes config.json of a file's keys and tensors. It goes on after an
// error, so that all of them are found.
type converter struct {
	arch    arch
	keys    gguf.Keys
	tensors map[string]gguf.Tensor // by their names in the file
	floats  func(tensor string) ([]float32, error)
	config  map[string]any
	errs    []error
}

// clipArch is the architecture of mmproj files.
const clipArch = "clip"

// findArch picks the architecture of a file.
func findArch(keys gguf.Keys) (arch, error) {
	name, ok, err := keys.Text("general.architecture")
	if err != nil {
		return arch{}, err
	}
	if name == clipArch {
		return arch{}, unsupportedf("general.architecture %q: this is a mmproj file, the part of a model that reads images; name the GGUF file of its text model, which finds it in the same folder if the name contains mmproj", name)
	}
	if kind, ok, err := keys.Text("general.type"); err != nil || ok && kind != "model" {
		return arch{}, orElse(err, unsupportedf("general.type %q: this is not a model by itself", kind))
	}
	if err := checkWhole(keys); err != nil {
		return arch{}, err
	}
	if !ok {
		return arch{}, badf("general.architecture is missing")
	}
	var known []string
	for _, a := range archs() {
		if a.name == name {
			experts, _, _ := keys.Int(name + ".expert_count") // read again with its field
			if !a.withExperts || experts > 0 {
				return a, nil
			}
		}
		known = append(known, a.name)
	}
	return arch{}, unsupportedf("general.architecture %q; known are %s", name, strings.Join(slices.Compact(known), ", "))
}

// checkWhole refuses parts of files.
func checkWhole(keys gguf.Keys) error {
	if n, _, err := keys.Int("split.count"); err != nil || n > 1 {
		return orElse(err, unsupportedf("split.count %d: the model is split into several files; merge them first (llama-gguf-split --merge)", n))
	}
	if n, ok, err := keys.Int("general.quantization_version"); err != nil || ok && n != 2 {
		return orElse(err, unsupportedf("general.quantization_version %d: known is 2; convert the model again", n))
	}
	return nil
}

func orElse(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// convert fills config.
func (c *converter) convert() {
	c.config = map[string]any{"architectures": []string{c.arch.class}, "model_type": c.arch.modelType}
	maps.Copy(c.config, c.arch.fixed)
	for _, f := range slices.Concat(commonFields(), c.arch.fields) {
		c.field(f)
	}
	c.refuse()
	for name, tensor := range c.arch.biased {
		c.config[name] = c.hasTensor("blk.0." + tensor)
	}
	if embed := c.tensors["token_embd.weight"]; len(embed.Shape) == 2 {
		c.config["vocab_size"] = embed.Shape[0]
		switch embed.Type {
		case gguf.F32:
			c.config["torch_dtype"] = "float32"
		case gguf.F16:
			c.config["torch_dtype"] = "float16"
		case gguf.BF16:
			c.config["torch_dtype"] = "bfloat16"
		}
	} else {
		c.fail(badf("tensor token_embd.weight is missing or is no matrix"))
	}
	c.config["tie_word_embeddings"] = !c.hasTensor("output.weight")
	dim := c.headDim()
	if dim == 0 {
		return
	}
	c.config["head_dim"] = dim
	if c.arch.queryScalar > 0 {
		c.config["query_pre_attn_scalar"] = dim
		if c.number("num_hidden_layers") == c.arch.queryScalar {
			c.config["query_pre_attn_scalar"] = c.number("hidden_size") / c.number("num_attention_heads")
		}
	}
	c.rope(dim)
}

func (c *converter) hasTensor(name string) bool {
	_, ok := c.tensors[name]
	return ok
}

// field copies a key into its field. An array, one number for each layer, must have
// equal ones.
func (c *converter) field(f field) {
	key := c.key(f.key)
	if f.fraction {
		if v, ok := c.real(f.key); ok {
			c.config[f.name] = v
		} else if !c.keys.Has(key) && !f.optional {
			c.fail(badf("%s is missing", key))
		}
		return
	}
	list, ok, err := c.keys.Ints(key)
	switch c.fail(err); {
	case err != nil:
	case ok && len(list) == 0, !ok && !f.optional:
		c.fail(badf("%s is missing", key))
	case ok && len(slices.Compact(list)) > 1:
		c.fail(unsupportedf("%s is not the same in all layers", key))
	case ok:
		c.config[f.name] = list[0]
	}
}

// refuse reports the keys that the engines would ignore.
func (c *converter) refuse() {
	fields := map[string]bool{}
	for _, f := range c.arch.fields {
		fields[f.key] = true
	}
	values := neutral()
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if fields[name] || !c.keys.Has(c.key(name)) {
			continue
		}
		if v, ok := c.real(name); ok && !slices.Contains(values[name], v) && !c.wideWindow(name, v) {
			c.fail(unsupportedf("%s is %v, which %s models do not have here", c.key(name), v, c.arch.modelType))
		}
	}
	flags := neutralFlags()
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		v, ok, err := c.keys.Bool(c.key(name))
		if c.fail(err); ok && v != flags[name] && c.config["norm_topk_prob"] != v {
			c.fail(unsupportedf("%s is %v, which %s models do not have here", c.key(name), v, c.arch.modelType))
		}
	}
}

// wideWindow reports whether a window covers the whole context, so that it changes
// nothing.
func (c *converter) wideWindow(name string, window float64) bool {
	context := c.number("max_position_embeddings")
	return name == "attention.sliding_window" && context > 0 && window >= float64(context)
}

// headDim is the size of a head, 0 when it cannot be told.
func (c *converter) headDim() int {
	hidden, heads := c.number("hidden_size"), c.number("num_attention_heads")
	if hidden == 0 || heads == 0 {
		return 0 // already an error, or one of whoever reads config.json
	}
	keyDim, ok, err := c.keys.Int(c.key("attention.key_length"))
	c.fail(err)
	if err != nil {
		return 0
	}
	if !ok {
		if hidden%heads != 0 {
			c.fail(badf("%s is missing, and %d is not a multiple of %d heads", c.key("attention.key_length"), hidden, heads))
			return 0
		}
		keyDim = hidden / heads
	}
	valueDim, ok, err := c.keys.Int(c.key("attention.value_length"))
	c.fail(err)
	if ok && valueDim != keyDim {
		c.fail(unsupportedf("%s is %d and the size of keys %d: they differ", c.key("attention.value_length"), valueDim, keyDim))
	}
	return keyDim
}

// real reads a key of the architecture that is a finite number; false means that it
// is absent or wrong. Values were rounded to float32 for the file: the shortest
// decimal that rounds alike is what they were before.
func (c *converter) real(name string) (float64, bool) {
	v, ok, err := c.keys.Float(c.key(name))
	c.fail(err)
	if _, single := c.keys[c.key(name)].(float32); single && ok {
		v, err = strconv.ParseFloat(strconv.FormatFloat(v, 'g', -1, 32), 64)
		c.fail(err)
	}
	if ok && (math.IsNaN(v) || math.IsInf(v, 0)) {
		c.fail(badf("%s is %v", c.key(name), v))
		return 0, false
	}
	return v, ok
}

// number is a whole number that is already in config, 0 when it is not.
func (c *converter) number(name string) int {
	n, _ := c.config[name].(int)
	return n
}

func (c *converter) key(name string) string { return c.arch.name + "." + name }

// fail remembers an error, if there is one.
func (c *converter) fail(err error) {
	if err != nil {
		c.errs = append(c.errs, err)
	}
}

func badf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrConfig}, args...)...)
}

func unsupportedf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrUnsupported}, args...)...)
}
