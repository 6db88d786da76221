package model

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// FP8 holds the settings in config.json about weights stored as fp8 that the tensors'
// types do not tell. The types tell which matrices are fp8, so lists of excluded modules
// are not needed.
type FP8 struct {
	// Method is the quant_method, "" for checkpoints that are not quantized.
	Method string
	// Static: activations were meant to be fp8 with scales from the checkpoint.
	Static bool
	// Dynamic: activations were meant to be fp8 with scales computed at run time.
	Dynamic bool
}

// fp8Block is the number of rows, and of columns, that share a scale if the checkpoint
// has one scale for each block.
const fp8Block = 128

// fp8Methods returns a reader for each known value of quant_method.
func fp8Methods() map[string]func(f fields, q *FP8) {
	return map[string]func(f fields, q *FP8){
		"fp8": readPlainFP8, "compressed-tensors": readCompressed, "fbgemm_fp8": readFBGEMM, "modelopt": readModelOpt,
	}
}

// readFP8 reads quantization_config. It refuses all settings that are not fp8.
func readFP8(f fields) (q FP8) {
	f, ok := f.object("quantization_config")
	if !ok {
		return q
	}
	q.Method = f.text("quant_method", "")
	read := fp8Methods()[q.Method]
	if read == nil {
		f.fail(ErrUnsupported, "quant_method", "%q is unknown; known are compressed-tensors, fbgemm_fp8, fp8 and modelopt, with weights of F8_E4M3", q.Method)
		return q
	}
	read(f, &q)
	return q
}

// readPlainFP8 reads the format of DeepSeek, Qwen and AutoFP8.
func readPlainFP8(f fields, q *FP8) {
	if format := f.text("fmt", "e4m3"); format != "e4m3" {
		f.fail(ErrUnsupported, "fmt", "%q: weights are known as e4m3 only", format)
	}
	f.fp8Block("weight_block_size")
	switch scheme := f.text("activation_scheme", "dynamic"); scheme {
	case "static":
		q.Static = true
	case "dynamic":
		q.Dynamic = true
	default:
		f.fail(ErrUnsupported, "activation_scheme", "%q is unknown; known are static and dynamic", scheme)
	}
}

// fp8Block refuses blocks of another size.
func (f fields) fp8Block(name string) {
	var sizes []int
	if f.decode(name, &sizes, "a list of two sizes") && !slices.Equal(sizes, []int{fp8Block, fp8Block}) {
		f.fail(ErrUnsupported, name, "%v: a scale is known for blocks of %d × %d weights, for each row, and for the whole matrix", sizes, fp8Block, fp8Block)
	}
}

// readCompressed reads the format of llm-compressor: groups of modules, each with a
// scheme.
func readCompressed(f fields, q *FP8) {
	switch format := f.text("format", "float-quantized"); format {
	case "float-quantized", "naive-quantized":
	default:
		f.fail(ErrUnsupported, "format", "%q: known are weights of fp8, float-quantized and naive-quantized", format)
	}
	if sparse, ok := f.object("sparsity_config"); ok {
		if format := sparse.text("format", "dense"); format != "dense" {
			sparse.fail(ErrUnsupported, "format", "%q: weights must be dense", format)
		}
	}
	groups, ok := f.object("config_groups")
	if !ok {
		f.fail(ErrConfig, "config_groups", "missing")
	}
	for _, name := range groups.names() {
		if group, ok := groups.object(name); ok {
			readGroup(group, q)
		}
	}
}

func readGroup(group fields, q *FP8) {
	if w, ok := group.object("weights"); ok {
		kind, bits := w.text("type", "int"), w.count("num_bits", 8, 64)
		if kind != "float" || bits != 8 {
			w.fail(ErrUnsupported, "type", "%s of %d bits: known is float of 8", kind, bits)
		}
		if !w.boolean("symmetric", true) {
			w.fail(ErrUnsupported, "symmetric", "false: weights with zero points are not known")
		}
		switch strategy := w.text("strategy", "tensor"); strategy {
		case "tensor", "channel":
		case "block":
			w.fp8Block("block_structure")
		default:
			w.fail(ErrUnsupported, "strategy", "%q is unknown; known are tensor, channel and block", strategy)
		}
	}
	in, ok := group.object("input_activations")
	if !ok {
		return
	}
	// Old files have true or false, newer ones a third value.
	dynamic := in.has("dynamic") && string(in.raw["dynamic"]) != "false"
	q.Dynamic, q.Static = q.Dynamic || dynamic, q.Static || !dynamic
}

// readFBGEMM reads the format of Llama 3.1 405B: a scale for each row.
func readFBGEMM(_ fields, q *FP8) { q.Dynamic = true }

// readModelOpt reads the format of NVIDIA's Model Optimizer: one scale for a matrix.
func readModelOpt(f fields, q *FP8) {
	if nested, ok := f.object("quantization"); ok { // files of 2024
		f = nested
	}
	if algo := f.text("quant_algo", ""); algo != "FP8" {
		f.fail(ErrUnsupported, "quant_algo", "%q: known is FP8", algo)
	}
	q.Static = true
}

// findScales finds the scales of a matrix of F8_E4M3, by the names that checkpoints use.
// Their shape determines how many weights share one.
func findScales(t Tensor, lookup func(name string) (Tensor, bool)) (*safetensors.Scales, error) {
	if len(t.Shape) != 2 {
		return nil, fmt.Errorf("has type %s and %d dimensions; known are matrices", t.DType, len(t.Shape))
	}
	for _, suffix := range []string{"_scale_inv", "_scale"} {
		s, ok := lookup(t.Name + suffix)
		if !ok {
			continue
		}
		switch s.DType {
		case safetensors.F32, safetensors.BF16, safetensors.F16:
		default:
			return nil, fmt.Errorf("has scales of type %s; known are F32, BF16, F16", s.DType)
		}
		rows, cols := t.Shape[0], t.Shape[1]
		down, across := (rows+fp8Block-1)/fp8Block, (cols+fp8Block-1)/fp8Block
		switch count := elems(s.Shape); {
		case count == 1:
			return &safetensors.Scales{Tensor: s, Rows: max(rows, 1), Cols: max(cols, 1), Across: 1}, nil
		case slices.Equal(s.Shape, []int{rows}) || slices.Equal(s.Shape, []int{rows, 1}):
			return &safetensors.Scales{Tensor: s, Rows: 1, Cols: max(cols, 1), Across: 1}, nil
		case slices.Equal(s.Shape, []int{down, across}):
			return &safetensors.Scales{Tensor: s, Rows: fp8Block, Cols: fp8Block, Across: across}, nil
		}
		return nil, fmt.Errorf("has scales of shape %v: a matrix of %d × %d has one, one for each row (%d), or one for each block of %d × %d ([%d %d])",
			s.Shape, rows, cols, rows, fp8Block, fp8Block, down, across)
	}
	return nil, fmt.Errorf("has type %s and no scales, %s or %s", t.DType, t.Name+"_scale_inv", t.Name+"_scale")
}

// fp8Notes adds warnings about settings of an fp8 checkpoint that are not followed. extra
// holds the unused tensors; it returns those that it did not report.
func (m *Model) fp8Notes(extra []string) []string {
	uses := func(t TensorSpec) bool { found, _ := m.set.Lookup(t.Name); return found.DType == safetensors.F8_E4M3 }
	if !slices.ContainsFunc(m.specs, uses) {
		return extra
	}
	var inputs, kv int
	extra = slices.DeleteFunc(extra, func(name string) bool {
		switch _, last, _ := cutLast(name, "."); last {
		case "input_scale", "activation_scale", "input_scale_ub":
			inputs++
		case "k_scale", "v_scale", "kv_scale", "output_scale":
			kv++
		default:
			return false
		}
		return true
	})
	const same = "only weights are: products take activations as they are, which is more exact"
	switch q := m.config.FP8; {
	case inputs > 0 || q.Static:
		m.warnings = append(m.warnings, fmt.Sprintf("the checkpoint has weights and activations of fp8; %s, and %d scales of activations are not used", same, inputs))
	case q.Dynamic:
		m.warnings = append(m.warnings, "the checkpoint asks for weights and activations of fp8; "+same)
	}
	if kv > 0 {
		m.warnings = append(m.warnings, fmt.Sprintf("%d scales of an fp8 KV cache are not used: keys and values are bf16 unless kv_cache_dtype is set", kv))
	}
	return extra
}

// cutLast is strings.Cut at the last separator.
func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return "", s, false
}
