package model

import (
	"strings"
	"testing"
)

// TestChooseMmproj: which mmproj file of a folder belongs to a model.
func TestChooseMmproj(t *testing.T) {
	for _, tt := range []struct {
		name, model string
		beside      string // other files
		want        string
		note, err   string
	}{
		{"none", "a.gguf", "", "", "", ""},
		{"none beside others", "a.gguf", "b.gguf c.gguf", "", "", ""},
		{"the only one", "SmolVLM-256M-Instruct-Q8_0.gguf", "mmproj-SmolVLM-256M-Instruct-f16.gguf", "mmproj-SmolVLM-256M-Instruct-f16.gguf", "", ""},
		{"of another name beside one model", "gemma-3-4b-it-q4_0.gguf", "mmproj-model-f16.gguf", "mmproj-model-f16.gguf", "", ""},
		{"of another name beside one model in two types", "gemma-3-4b-it-Q4_K_M.gguf", "gemma-3-4b-it-Q8_0.gguf mmproj-google_gemma-3-4b-it-f16.gguf", "mmproj-google_gemma-3-4b-it-f16.gguf", "", ""},
		{"a model without an ending", "0a1b2c", "", "", "", ""},
		{"its own among several models", "Qwen2-VL-2B-Instruct-Q4_K_M.gguf", "mmproj-Qwen2-VL-2B-Instruct-f32.gguf gemma-3-4b-it.gguf mmproj-gemma-3-4b-it-f32.gguf", "mmproj-Qwen2-VL-2B-Instruct-f32.gguf", "", ""},
		{"with the word at the end", "qwen2-vl-2b_Q8_0.gguf", "Qwen2-VL-2B-mmproj-bf16.gguf llama.gguf", "Qwen2-VL-2B-mmproj-bf16.gguf", "", ""},
		{"with the word in front of the type", "x.i1-Q4_K_M.gguf", "x.mmproj-Q8_0.gguf y.gguf", "x.mmproj-Q8_0.gguf", "", ""},
		{"of dynamic types", "x-UD-Q4_K_XL.gguf", "x-UD-IQ2_XXS.gguf mmproj-x-F16.gguf y.gguf", "mmproj-x-F16.gguf", "", ""},
		{"without a name", "x-Q4_0.gguf", "y.gguf mmproj-F16.gguf", "mmproj-F16.gguf", "", ""},
		{"its own before one without a name", "x-Q4_0.gguf", "y.gguf mmproj-F16.gguf mmproj-x.gguf", "mmproj-x.gguf", "", ""},
		{"another model's", "llama-3.gguf", "gemma-3.gguf mmproj-gemma-3-f16.gguf", "", "mmproj-gemma-3-f16.gguf beside it is not used", ""},
		{"other generations", "qwen2.5-vl.gguf", "qwen2-vl.gguf mmproj-qwen2-vl.gguf", "", "not used", ""},
		{"several", "x-Q4_0.gguf", "mmproj-BF16.gguf mmproj-F16.gguf mmproj-F32.gguf", "", "", "3 mmproj files belong to x-Q4_0.gguf: mmproj-BF16.gguf, mmproj-F16.gguf, mmproj-F32.gguf; leave one"},
		{"several, one of the model's type", "x-fp16.gguf", "mmproj-BF16.gguf mmproj-F16.gguf mmproj-F32.gguf", "mmproj-F16.gguf", "", ""},
		{"several of the model's type", "x-F16.gguf", "mmproj-F16.gguf mmproj-x-f16.gguf", "", "", "2 mmproj files"},
		{"several without a type", "x.gguf", "mmproj-a.gguf mmproj-b.gguf", "", "", "2 mmproj files"},
	} {
		names := append(strings.Fields(tt.beside), tt.model)
		got, note, err := chooseMmproj(tt.model, names)
		if got != tt.want || !strings.Contains(note, tt.note) || (note != "") != (tt.note != "") ||
			(err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %q, note %q, err %v", tt.name, got, note, err)
		}
	}
}
