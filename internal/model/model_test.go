package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// tiny is the smallest checkpoint.
func tiny() Synthetic {
	return Synthetic{Layers: 1, Hidden: 8, Heads: 2, HeadDim: 4, FFN: 8, Vocab: 260}
}

func write(t testing.TB, s Synthetic) string {
	t.Helper()
	dir := t.TempDir()
	if err := s.Write(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func mustOpen(t testing.TB, dir string) *Model {
	t.Helper()
	m, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// edit changes a JSON file of a checkpoint.
func edit(t testing.TB, dir, name string, change func(fields map[string]any)) {
	t.Helper()
	path := filepath.Join(dir, name)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	fields := make(map[string]any)
	if err := dec.Decode(&fields); err != nil {
		t.Fatal(err)
	}
	change(fields)
	putFile(t, dir, name, string(encode(t, fields)))
}

func putFile(t testing.TB, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// weights writes a weight file with the given tensors, all zero.
func weights(t testing.TB, path string, dtype safetensors.DType, specs []TensorSpec) {
	t.Helper()
	var l safetensors.Layout
	for _, s := range specs {
		if _, err := l.Add(s.Name, dtype, s.Shape...); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path, append(l.Header(nil), make([]byte, l.Size())...), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestOpen(t *testing.T) {
	for _, shards := range []int{1, 3} {
		s := tiny()
		s.Shards = shards
		m := mustOpen(t, write(t, s))
		if c := m.Config(); c.Family != "llama" || c.Hidden != 8 {
			t.Errorf("config = %+v", c)
		}
		for _, spec := range m.Config().Tensors() {
			got, ok := m.Weight(spec.Role, spec.Layer)
			if !ok || got.Name != spec.Name || !slices.Equal(got.Shape, spec.Shape) {
				t.Errorf("role %d is %+v, want %+v", spec.Role, got, spec)
			}
		}
		if _, ok := m.Weight(RoleQNorm, 0); ok {
			t.Error("a llama model has no norm on queries")
		}
		if _, ok := m.Weight(RoleQ, 1); ok {
			t.Error("the second layer of one exists")
		}
		if _, err := m.Tensor("none"); !errors.Is(err, ErrWeights) {
			t.Errorf("unknown tensor: err = %v, want ErrWeights", err)
		}
		if tensor, err := m.Tensor("lm_head.weight"); err != nil || len(tensor.Data) != 260*8*4 {
			t.Errorf("head: %d bytes, err = %v", len(tensor.Data), err)
		}
		if got := m.EOS(); !slices.Equal(got, []uint32{257, 259}) {
			t.Errorf("eos = %v", got)
		}
		if m.TokenLimit() != 260 || m.WeightBytes() == 0 || m.Check() != nil {
			t.Errorf("token limit %d, %d bytes", m.TokenLimit(), m.WeightBytes())
		}
		if err := errors.Join(m.Close(), m.Close()); err != nil {
			t.Error(err)
		}
	}
}

func TestTiedHead(t *testing.T) {
	s := tiny()
	s.Tied = true
	dir := write(t, s)
	m := mustOpen(t, dir)
	head, ok := m.Weight(RoleHead, 0)
	if !ok || head.Name != "model.embed_tokens.weight" {
		t.Errorf("head is %q, want the embedding", head.Name)
	}
	// A head in the file changes nothing and is no reason to warn.
	untied := m.Config()
	untied.TiedHead = false
	weights(t, filepath.Join(dir, safetensors.SingleName), safetensors.F32, untied.Tensors())
	var log bytes.Buffer
	again, err := Open(dir, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if head, _ := again.Weight(RoleHead, 0); head.Name != "model.embed_tokens.weight" || log.Len() > 0 {
		t.Errorf("head is %q, log %q", head.Name, log.String())
	}
}

func TestOpenRefuses(t *testing.T) {
	without := func(name string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	file := func(name, content string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) { putFile(t, dir, name, content) }
	}
	retensor := func(dtype safetensors.DType, change func(specs []TensorSpec) []TensorSpec) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			m := mustOpen(t, dir)
			weights(t, filepath.Join(dir, safetensors.SingleName), dtype, change(m.Config().Tensors()))
		}
	}
	keep := func(s []TensorSpec) []TensorSpec { return s }
	tests := []struct {
		name   string
		damage func(t *testing.T, dir string)
		kind   error
		want   string
	}{
		{"no config", without("config.json"), ErrConfig, "config.json: invalid model configuration: missing"},
		{"config not JSON", file("config.json", "x"), ErrConfig, "config.json"},
		{"no weights", without("model.safetensors"), safetensors.ErrNoWeights, "model.safetensors"},
		{"damaged weights", file("model.safetensors", "x"), safetensors.ErrFormat, "open model.safetensors"},
		{"damaged index", func(t *testing.T, dir string) {
			without("model.safetensors")(t, dir)
			putFile(t, dir, "model.safetensors.index.json", `{"weight_map":{"a":"../b"}}`)
		}, safetensors.ErrFormat, "model.safetensors.index.json"},
		{"missing tensor", retensor("F32", func(s []TensorSpec) []TensorSpec { return s[:len(s)-1] }), ErrWeights, "1 tensors are missing: lm_head.weight"},
		{"many missing tensors", retensor("F32", func(s []TensorSpec) []TensorSpec { return s[:1] }), ErrWeights, "11 tensors are missing: model.layers.0"},
		{"wrong shape", retensor("F32", func(s []TensorSpec) []TensorSpec { s[0].Shape = []int{8, 260}; return s }), ErrWeights,
			`"model.embed_tokens.weight" of model.safetensors has shape [8 260], want [260 8]`},
		{"wrong rank", retensor("F32", func(s []TensorSpec) []TensorSpec { s[0].Shape = []int{260 * 8}; return s }), ErrWeights, "has shape [2080]"},
		{"wrong type", retensor("F64", keep), ErrWeights, "has type F64; known are F32, F16, BF16"},
		{"integers", retensor("I32", keep), ErrWeights, "has type I32"},
		{"generation config not JSON", file("generation_config.json", "["), ErrConfig, "generation_config.json"},
		{"end of text is a string", file("generation_config.json", `{"eos_token_id":"x"}`), ErrConfig, "generation_config.json: invalid model configuration: eos_token_id"},
		{"end of text is negative", file("generation_config.json", `{"eos_token_id":-1}`), ErrConfig, "eos_token_id"},
		{"end of text past the vocabulary", file("generation_config.json", `{"eos_token_id":[1,260]}`), ErrConfig, "260 is not below vocab_size 260"},
		{"tokenizer not JSON", file("tokenizer.json", "x"), ErrConfig, "tokenizer.json"},
		{"token past the vocabulary", file("tokenizer.json", `{"model":{"vocab":{"a":260}}}`), ErrConfig, "uses id 260"},
		{"added token past the vocabulary", file("tokenizer.json", `{"added_tokens":[{"id":300}]}`), ErrConfig, "uses id 300"},
		{"negative token", file("tokenizer.json", `{"model":{"vocab":{"a":-1}}}`), ErrConfig, "tokenizer.json"},
		{"folder in place of a file", func(t *testing.T, dir string) {
			without("tokenizer.json")(t, dir)
			if err := os.Mkdir(filepath.Join(dir, "tokenizer.json"), 0o755); err != nil {
				t.Fatal(err)
			}
		}, nil, "not a regular file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := write(t, tiny())
			tt.damage(t, dir)
			m, err := Open(dir, Options{})
			if err == nil {
				_ = m.Close()
				t.Fatal("no error")
			}
			if tt.kind != nil && !errors.Is(err, tt.kind) {
				t.Errorf("err = %v, want %v", err, tt.kind)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("err = %v, want it to say %q", err, tt.want)
			}
		})
	}
	t.Run("no folder", func(t *testing.T) {
		if _, err := Open(filepath.Join(t.TempDir(), "x"), Options{}); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("err = %v, want ErrNotExist", err)
		}
	})
	t.Run("file in place of the folder", func(t *testing.T) {
		dir := write(t, tiny())
		if _, err := Open(filepath.Join(dir, "config.json"), Options{}); !errors.Is(err, gguf.ErrFormat) || !strings.Contains(err.Error(), "not a folder") {
			t.Errorf("err = %v, want not a folder", err)
		}
	})
}

func TestExtraTensorsWarn(t *testing.T) {
	dir := write(t, tiny())
	specs := mustOpen(t, dir).Config().Tensors()
	specs = append(specs,
		TensorSpec{Name: "model.layers.0.self_attn.rotary_emb.inv_freq", Shape: []int{2}}, // known to be useless
		TensorSpec{Name: "model.layers.9.extra", Shape: []int{1}})
	weights(t, filepath.Join(dir, safetensors.SingleName), safetensors.F32, specs)
	var log bytes.Buffer
	m, err := Open(dir, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if got := log.String(); !strings.Contains(got, "1 tensors are not used") || !strings.Contains(got, "model.layers.9.extra") {
		t.Errorf("log = %q", got)
	}
}

func TestShortenedWhileOpen(t *testing.T) {
	dir := write(t, tiny())
	m := mustOpen(t, dir)
	if err := os.Truncate(filepath.Join(dir, safetensors.SingleName), 100); err != nil {
		t.Fatal(err)
	}
	if err := m.Check(); !errors.Is(err, safetensors.ErrChanged) {
		t.Errorf("err = %v, want ErrChanged", err)
	}
}
