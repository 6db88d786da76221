package ggufvocab_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/gguf/gguftest"
	"github.com/dynctl/dynctl/internal/model/ggufvocab"
	"github.com/dynctl/dynctl/internal/tokenizer"
)

// recorded are the tokenizers with vectors of the Hugging Face library.
const recorded = "../../tokenizer/testdata"

func load(t testing.TB, name string, rows int) gguftest.Vocabulary {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(recorded, name+".tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	return gguftest.ReadVocabulary(t, raw, rows)
}

// keys builds a file and reads its keys back.
func keys(t testing.TB, fill func(b *gguftest.Builder)) gguf.Keys {
	t.Helper()
	var b gguftest.Builder
	fill(&b)
	content := b.Bytes()
	h, err := gguf.ParseHeader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	return h.Keys
}

// TestRecordedVectors sends tokenizers through GGUF keys and back, and wants what
// the Hugging Face library gives for the originals.
func TestRecordedVectors(t *testing.T) {
	for _, tt := range []struct {
		name, pre, bos string
		prefix         bool
	}{
		{"llama3-like", "llama-bpe", "<|begin_of_text|>", false},
		{"qwen2-like", "qwen2", "", false},
		{"llama2-like", "", "<s>", true},
		{"gemma-like", "", "<bos>", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := load(t, tt.name, 0)
			got, err := ggufvocab.Read(keys(t, func(b *gguftest.Builder) {
				v.Keys(b, tt.pre)
				if tt.bos != "" {
					b.Key("tokenizer.ggml.bos_token_id", v.ID(t, tt.bos))
				}
				b.Key("tokenizer.ggml.add_space_prefix", tt.prefix)
			}), 128)
			if err != nil {
				t.Fatal(err)
			}
			tok, err := tokenizer.Load(got.Tokenizer)
			if err != nil {
				t.Fatal(err)
			}
			checkVectors(t, tok, tt.name)
		})
	}
}

func checkVectors(t *testing.T, tok *tokenizer.Tokenizer, name string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(recorded, name+".vectors.json"))
	if err != nil {
		t.Fatal(err)
	}
	var vectors struct {
		Encode []struct {
			Text        string
			IDs         []uint32
			WithSpecial []uint32 `json:"ids_with_special"`
			Decoded     string
			Skipped     string `json:"decoded_skip_special"`
		}
		Decode []struct {
			IDs  []uint32
			Text string
		}
	}
	if err := json.Unmarshal(raw, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors.Encode) == 0 || len(vectors.Decode) == 0 {
		t.Fatal("no vectors")
	}
	for _, x := range vectors.Encode {
		if ids := tok.Encode(x.Text, false); !slices.Equal(ids, x.IDs) {
			t.Errorf("Encode(%+q) = %v, want %v", x.Text, ids, x.IDs)
		}
		if ids := tok.Encode(x.Text, true); !slices.Equal(ids, x.WithSpecial) {
			t.Errorf("Encode(%+q, special) = %v, want %v", x.Text, ids, x.WithSpecial)
		}
		if text := tok.Decode(x.IDs, false); text != x.Decoded {
			t.Errorf("Decode(%v) = %+q, want %+q", x.IDs, text, x.Decoded)
		}
		if text := tok.Decode(x.WithSpecial, true); text != x.Skipped {
			t.Errorf("Decode(%v, skip) = %+q, want %+q", x.WithSpecial, text, x.Skipped)
		}
	}
	for _, x := range vectors.Decode {
		if text := tok.Decode(x.IDs, false); text != x.Text {
			t.Errorf("Decode(%v) = %+q, want %+q", x.IDs, text, x.Text)
		}
	}
}
