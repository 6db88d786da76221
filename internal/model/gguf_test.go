package model_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/tokenizer"
)

func openGGUF(t testing.TB, path string) *model.Model {
	t.Helper()
	m, err := model.Open(path, model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// specs are models in the forms that differ between folder and file.
func specs() map[string]modeltest.Spec {
	return map[string]modeltest.Spec{
		"llama":        {Family: "llama", KVHeads: 2, Vocab: 300},
		"llama biased": {Family: "llama", KVHeads: 2, Vocab: 300, AttentionBias: true, MLPBias: true},
		"llama tied":   {Family: "llama", Vocab: 300, Tied: true, DType: "bf16"},
		"llama linear": {Family: "llama", Vocab: 300, RopeScaling: map[string]any{"rope_type": "linear", "factor": 4.0}},
		"qwen3":        {Family: "qwen3", KVHeads: 2, HeadDim: 32, Vocab: 300, RopeTheta: 1e6},
		"qwen3 yarn": {Family: "qwen3", Vocab: 300, RopeScaling: map[string]any{
			"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 1024,
		}},
	}
}

// TestGGUFIsTheFolder opens models both ways and compares everything.
func TestGGUFIsTheFolder(t *testing.T) {
	if testing.Short() {
		t.Skip("arithmetic in one goroutine")
	}
	for name, spec := range specs() {
		t.Run(name, func(t *testing.T) {
			dir := modeltest.Generate(t, spec)
			want := openGGUF(t, dir)
			for _, kind := range []gguf.Type{gguf.F32, gguf.F16, gguf.BF16} {
				// What the file cannot hold is not the reader's business.
				if kind != gguf.F32 {
					want = openGGUF(t, modeltest.Quantized(t, dir, kind))
				}
				got := openGGUF(t, modeltest.GGUF(t, dir, kind))
				if got.Format() != "gguf v3" || !slices.Equal(got.EOS(), want.EOS()) || got.TokenLimit() != want.TokenLimit() {
					t.Errorf("%s: format %s, eos %v, limit %d; want %v, %d", kind, got.Format(), got.EOS(), got.TokenLimit(), want.EOS(), want.TokenLimit())
				}
				sameConfig(t, got.Config(), want.Config())
				sameWeights(t, got, want)
				sameText(t, got, want)
			}
		})
	}
}

func sameConfig(t *testing.T, got, want model.Config) {
	t.Helper()
	got.DType, want.DType = "", ""
	a, err1 := json.Marshal(got)
	b, err2 := json.Marshal(want)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Errorf("config\n%s\nwant\n%s", a, b)
	}
}

func sameWeights(t *testing.T, got, want *model.Model) {
	t.Helper()
	for _, info := range want.Inventory() {
		a, err := got.Tensor(info.Name)
		if err != nil {
			t.Error(err)
			continue
		}
		b, err := want.Tensor(info.Name)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(a.Shape, b.Shape) || !slices.Equal(modeltest.Floats(t, a), modeltest.Floats(t, b)) {
			t.Errorf("%s differs: shapes %v and %v", info.Name, a.Shape, b.Shape)
		}
	}
	if a, b := len(got.Inventory()), len(want.Inventory()); a != b {
		t.Errorf("%d tensors, want %d", a, b)
	}
}

func sameText(t *testing.T, got, want *model.Model) {
	t.Helper()
	load := func(m *model.Model) *tokenizer.Tokenizer {
		for _, f := range m.Files() {
			if f.Name == model.TokenizerName {
				tok, err := tokenizer.Load(f.Data)
				if err != nil {
					t.Fatal(err)
				}
				return tok
			}
		}
		t.Fatal("no tokenizer")
		return nil
	}
	text := "<|im_start|>user\nWhat's 12345 + 1? Ünïcödé e\u0301<|im_end|>"
	if a, b := load(got).Encode(text, true), load(want).Encode(text, true); !slices.Equal(a, b) {
		t.Errorf("text is %v, want %v", a, b)
	}
}

// TestQuantizedGGUF compares with folders that hold the same values as float32.
func TestQuantizedGGUF(t *testing.T) {
	if testing.Short() {
		t.Skip("arithmetic in one goroutine")
	}
	for _, family := range []string{"llama", "qwen3"} {
		dir := modeltest.Generate(t, modeltest.Spec{Family: family, Layers: 1, Hidden: 256, Heads: 4, HeadDim: 64, FFN: 256, Vocab: 270})
		for _, kind := range []gguf.Type{gguf.Q8_0, gguf.Q4_0, gguf.Q4K, gguf.Q5K, gguf.Q6K} {
			t.Run(family+" "+kind.String(), func(t *testing.T) {
				got := openGGUF(t, modeltest.GGUF(t, dir, kind))
				sameWeights(t, got, openGGUF(t, modeltest.Quantized(t, dir, kind)))
				asStored(t, got, kind)
				// Twice the same memory, not twice the work.
				a, _ := got.Weight(model.RoleQ, 0)
				b, _ := got.Weight(model.RoleQ, 0)
				if &a.Data[0] != &b.Data[0] {
					t.Error("a tensor is made twice")
				}
				var want int64
				if family == "llama" { // queries and keys are put in order
					want = 2 * 256 * 256 / int64(kind.BlockWeights()) * int64(kind.BlockBytes())
				}
				if n := got.CopiedBytes(); n != want {
					t.Errorf("copies take %d bytes, want %d", n, want)
				}
			})
		}
	}
}

// asStored fails unless every matrix comes in the type of the file, with as many bytes
// as it has there.
func asStored(t *testing.T, m *model.Model, kind gguf.Type) {
	t.Helper()
	for _, info := range m.Inventory() {
		tensor, err := m.Tensor(info.Name)
		if err != nil {
			t.Fatal(err)
		}
		want := kind.String()
		if len(info.Shape) == 1 {
			want = "F32"
		}
		if string(tensor.DType) != want || string(info.DType) != want || info.Stored != want {
			t.Errorf("%s is %s, described as %s of a %s; want %s", info.Name, tensor.DType, info.DType, info.Stored, want)
		}
		if n := int64(len(tensor.Data)); n != info.Bytes || n != m.TensorBytes(info.Name) {
			t.Errorf("%s has %d bytes, %d in the file, %d are told", info.Name, n, info.Bytes, m.TensorBytes(info.Name))
		}
	}
}

// TestQuantizedParts finds the rows of roles that share a quantized tensor, and experts
// that lie in one.
func TestQuantizedParts(t *testing.T) {
	if testing.Short() {
		t.Skip("arithmetic in one goroutine")
	}
	for family, extra := range map[string]map[string]any{
		"phi3":      nil,
		"mixtral":   {"num_local_experts": 3, "num_experts_per_tok": 2, "sliding_window": nil},
		"qwen3_moe": {"num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 256, "norm_topk_prob": true},
		"gemma2":    {"sliding_window": 32, "query_pre_attn_scalar": 64, "tie_word_embeddings": true},
	} {
		for _, kind := range []gguf.Type{gguf.Q8_0, gguf.Q6K} {
			t.Run(family+" "+kind.String(), func(t *testing.T) {
				dir := modeltest.Generate(t, modeltest.Spec{
					Family: family, Layers: 1, Hidden: 256, Heads: 4, KVHeads: 2, HeadDim: 64, FFN: 512, Vocab: 270, Extra: extra,
				})
				got, want := openGGUF(t, modeltest.GGUF(t, dir, kind)), openGGUF(t, modeltest.Quantized(t, dir, kind))
				for role := model.RoleEmbed; role <= model.RoleExpertDown; role++ {
					for e := range 3 {
						b, ok := want.Expert(role, 0, e)
						a, has := got.Expert(role, 0, e)
						if has != ok {
							t.Errorf("role %d of expert %d: %v, want %v", role, e, has, ok)
						}
						if !ok || len(b.Shape) == 1 {
							continue
						}
						if string(a.DType) != kind.String() || !slices.Equal(a.Shape, b.Shape) || !slices.Equal(modeltest.Floats(t, a), modeltest.Floats(t, b)) {
							t.Errorf("role %d of expert %d differs: %s %v, want %v", role, e, a.DType, a.Shape, b.Shape)
						}
					}
				}
			})
		}
	}
}

// TestGGUFWithoutCopies: plain types of a family whose rows need no reordering stay
// where they are.
func TestGGUFWithoutCopies(t *testing.T) {
	dir := modeltest.Generate(t, modeltest.Spec{Family: "qwen3", Layers: 1, Vocab: 270})
	for _, kind := range []gguf.Type{gguf.F32, gguf.F16, gguf.BF16} {
		if n := openGGUF(t, modeltest.GGUF(t, dir, kind)).CopiedBytes(); n != 0 {
			t.Errorf("%s: copies take %d bytes", kind, n)
		}
	}
}

func TestGGUFInAFolder(t *testing.T) {
	path := modeltest.GGUF(t, modeltest.Generate(t, modeltest.Spec{Layers: 1, Vocab: 270}), gguf.F16)
	want := openGGUF(t, path)
	folder := filepath.Dir(path)
	m := openGGUF(t, folder)
	if m.Dir() != want.Dir() || m.Digest() != want.Digest() || len(want.Digest()) != 64 {
		t.Errorf("the folder gives %s %s, want %s %s", m.Dir(), m.Digest(), want.Dir(), want.Digest())
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "blob") // no extension, as in a cache
	if err := os.WriteFile(other, content, 0o644); err != nil {
		t.Fatal(err)
	}
	if m := openGGUF(t, other); m.Digest() != want.Digest() {
		t.Error("a copy under another name has another digest")
	}
	content[len(content)-40] ^= 1
	if err := os.WriteFile(other, content, 0o644); err != nil {
		t.Fatal(err)
	}
	if m := openGGUF(t, other); m.Digest() == want.Digest() {
		t.Error("other weights have the same digest")
	}
	if err := os.WriteFile(filepath.Join(folder, "second.GGUF"), content, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := model.Open(folder, model.Options{}); !errors.Is(err, gguf.ErrFormat) || !strings.Contains(err.Error(), "2 GGUF files without mmproj in their names; name one") {
		t.Errorf("two files: err = %v", err)
	}
}

func TestGGUFShortened(t *testing.T) {
	path := modeltest.GGUF(t, modeltest.Generate(t, modeltest.Spec{Layers: 1, Vocab: 270}), gguf.F16)
	m := openGGUF(t, path)
	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	if err := m.Check(); !errors.Is(err, gguf.ErrChanged) {
		t.Errorf("err = %v, want ErrChanged", err)
	}
}
