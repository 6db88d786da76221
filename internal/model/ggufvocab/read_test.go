package ggufvocab_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/gguf/gguftest"
	"github.com/dynctl/dynctl/internal/model/ggufvocab"
	"github.com/dynctl/dynctl/internal/tokenizer"
)

// spiece is a small SentencePiece vocabulary.
func spiece() gguftest.Vocabulary {
	return gguftest.Vocabulary{
		Model:  "llama",
		Tokens: []string{"<unk>", "<s>", "</s>", "▁", "a", "b", "ab", "▁ab", "ba", "<|end|>"},
		Types:  []int32{2, 3, 3, 1, 1, 1, 1, 1, 1, 3},
		Scores: []float32{0, 0, 0, -9, -9, -9, -2, -3, -1, 0},
	}
}

// bytewise is a small vocabulary of byte-level BPE.
func bytewise() gguftest.Vocabulary {
	return gguftest.Vocabulary{
		Model:  "gpt2",
		Tokens: []string{"a", "b", "ab", "Ġ", "Ġab", "1", "11", "<end>", "user", "[PAD9]"},
		Types:  []int32{1, 1, 1, 1, 1, 1, 1, 3, 4, 5},
		Merges: []string{"a b", "Ġ ab", "1 1"},
	}
}

func read(t *testing.T, fill func(b *gguftest.Builder)) (ggufvocab.Vocabulary, *tokenizer.Tokenizer) {
	t.Helper()
	v, err := ggufvocab.Read(keys(t, fill), 99)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(v.Tokenizer)
	if err != nil {
		t.Fatal(err)
	}
	return v, tok
}

func TestScoresDecideMerges(t *testing.T) {
	// "ba" has the best score, so "aba" is a, ba and not ab, a.
	_, tok := read(t, func(b *gguftest.Builder) {
		spiece().Keys(b, "")
		b.Key("tokenizer.ggml.bos_token_id", uint32(1))
	})
	for text, want := range map[string][]uint32{"ab": {1, 7}, "aba": {1, 3, 4, 8}, "c": {1, 3, 0}, "": {1}} {
		if got := tok.Encode(text, true); !slices.Equal(got, want) {
			t.Errorf("Encode(%q) = %v, want %v", text, got, want)
		}
	}
}

func TestFlags(t *testing.T) {
	_, tok := read(t, func(b *gguftest.Builder) {
		spiece().Keys(b, "")
		b.Key("tokenizer.ggml.bos_token_id", uint32(1))
		b.Key("tokenizer.ggml.eos_token_id", uint32(2))
		b.Key("tokenizer.ggml.add_bos_token", false)
		b.Key("tokenizer.ggml.add_eos_token", true)
		b.Key("tokenizer.ggml.add_space_prefix", false)
	})
	if got, want := tok.Encode("ab", true), []uint32{6, 2}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := tok.Decode([]uint32{3, 6}, false); got != " ab" {
		t.Errorf("without the prefix the first space is part of the text, got %q", got)
	}
}

// TestPreTokenizers cuts one text with every name.
func TestPreTokenizers(t *testing.T) {
	for _, tt := range []struct {
		names  string
		digits []uint32 // of "1111"
		bos    bool
	}{
		{"llama-bpe llama3 llama-v3", []uint32{6, 5, 5}, true}, // three, then one; in three the first two are joined
		{"qwen2 deepseek-r1-qwen qwen35", []uint32{5, 5, 5, 5}, false},
		{"gpt-2 phi-2", []uint32{6, 6}, false},
		{"smollm starcoder", []uint32{5, 5, 5, 5}, false},
		{"gpt-4o llama4", []uint32{6, 5, 5}, false},
		{"tekken", []uint32{5, 5, 5, 5}, true},
		{"deepseek-v3", []uint32{6, 5, 5}, false},
	} {
		for pre := range strings.FieldsSeq(tt.names) {
			_, tok := read(t, func(b *gguftest.Builder) {
				bytewise().Keys(b, pre)
				b.Key("tokenizer.ggml.bos_token_id", uint32(7))
			})
			want := slices.Concat([]uint32{2, 4}, tt.digits, []uint32{8, 7})
			if got := tok.Encode("ab ab1111user<end>", false); !slices.Equal(got, want) {
				t.Errorf("%s: got %v, want %v", pre, got, want)
			}
			if got := len(tok.Encode("ab", true)) == 2; got != tt.bos {
				t.Errorf("%s adds a first token: %v, want %v", pre, got, tt.bos)
			}
			if _, ok := tok.TokenID("[PAD9]"); ok {
				t.Errorf("%s: padding is a token", pre)
			}
		}
	}
}

func TestConfig(t *testing.T) {
	v, _ := read(t, func(b *gguftest.Builder) {
		spiece().Keys(b, "")
		b.Key("tokenizer.ggml.bos_token_id", uint32(1))
		b.Key("tokenizer.ggml.eos_token_id", uint32(2))
		b.Key("tokenizer.ggml.padding_token_id", uint32(2))
		b.Key("tokenizer.ggml.unknown_token_id", uint32(0))
		b.Key("tokenizer.chat_template", "{{ messages }}")
	})
	var got map[string]any
	if err := json.Unmarshal(v.TokenizerConfig, &got); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{
		"bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>", "unk_token": "<unk>", "chat_template": "{{ messages }}",
		"model_max_length": 99.0, "add_bos_token": true, "add_eos_token": false,
	} {
		if got[key] != want {
			t.Errorf("%s is %v, want %v", key, got[key], want)
		}
	}
	if want := []uint32{2, 9}; !slices.Equal(v.EOS, want) {
		t.Errorf("ends are %v, want %v: the named one and <|end|>", v.EOS, want)
	}
}

func TestNamedTemplates(t *testing.T) {
	v, _ := read(t, func(b *gguftest.Builder) {
		spiece().Keys(b, "")
		b.Key("tokenizer.ggml.bos_token_id", uint32(1))
		b.Key("tokenizer.chat_template", "plain")
		b.Key("tokenizer.chat_templates", []string{"tool_use", "absent"})
		b.Key("tokenizer.chat_template.tool_use", "with tools")
	})
	want := `"chat_template":[{"name":"default","template":"plain"},{"name":"tool_use","template":"with tools"}]`
	if !bytes.Contains(v.TokenizerConfig, []byte(want)) {
		t.Errorf("got %s, want %s in it", v.TokenizerConfig, want)
	}
}

func TestEqualKeysGiveEqualFiles(t *testing.T) {
	fill := func(b *gguftest.Builder) {
		load(t, "llama2-like", 0).Keys(b, "")
		b.Key("tokenizer.ggml.bos_token_id", uint32(1))
	}
	a, _ := read(t, fill)
	for range 3 {
		b, _ := read(t, fill)
		if !bytes.Equal(a.Tokenizer, b.Tokenizer) || !bytes.Equal(a.TokenizerConfig, b.TokenizerConfig) {
			t.Fatal("the files differ")
		}
	}
}

// TestWithoutTypes reads a file from before tokens had types: those with a role are
// special.
func TestWithoutTypes(t *testing.T) {
	k := keys(t, func(b *gguftest.Builder) { bytewise().Keys(b, "gpt-2") })
	delete(k, "tokenizer.ggml.token_type")
	k["tokenizer.ggml.eos_token_id"] = uint64(7)
	v, err := ggufvocab.Read(k, 1)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(v.Tokenizer)
	if err != nil {
		t.Fatal(err)
	}
	if got := tok.Encode("<end>", false); !slices.Equal(got, []uint32{7}) || !tok.IsSpecial(7) || tok.IsSpecial(2) {
		t.Errorf("got %v, special %v", got, tok.IsSpecial(7))
	}
}

func TestReadRefuses(t *testing.T) {
	set := func(key string, value any) func(k gguf.Keys) {
		return func(k gguf.Keys) { k["tokenizer."+key] = value }
	}
	without := func(key string) func(k gguf.Keys) { return func(k gguf.Keys) { delete(k, "tokenizer."+key) } }
	tests := []struct {
		name   string
		words  gguftest.Vocabulary
		change func(k gguf.Keys)
		kind   error
		want   string
	}{
		{"no model", bytewise(), without("ggml.model"), ggufvocab.ErrVocabulary, "the file has no tokenizer"},
		{"unknown model", bytewise(), set("ggml.model", "rwkv"), ggufvocab.ErrUnknown, `model "rwkv"; known are gpt2, llama`},
		{"model is a number", bytewise(), set("ggml.model", uint64(1)), gguf.ErrKey, "tokenizer.ggml.model"},
		{"no tokens", bytewise(), without("ggml.tokens"), ggufvocab.ErrVocabulary, "tokens is missing or empty"},
		{"empty tokens", bytewise(), set("ggml.tokens", []string{}), ggufvocab.ErrVocabulary, "tokens is missing or empty"},
		{"tokens are numbers", bytewise(), set("ggml.tokens", []uint64{1}), gguf.ErrKey, "tokenizer.ggml.tokens"},
		{"token is not UTF-8", bytewise(), func(k gguf.Keys) {
			k["tokenizer.ggml.tokens"].([]string)[1] = "\xff"
		}, ggufvocab.ErrVocabulary, "token 1 is not UTF-8"},
		{"token twice", bytewise(), func(k gguf.Keys) {
			k["tokenizer.ggml.tokens"].([]string)[5] = "a"
		}, ggufvocab.ErrVocabulary, `"a" has the ids 0 and 5`},
		{"too few types", bytewise(), set("ggml.token_type", []int64{1}), ggufvocab.ErrVocabulary, "token_type has 1 entries for 10"},
		{"unknown type", bytewise(), func(k gguf.Keys) {
			k["tokenizer.ggml.token_type"].([]int64)[2] = 9
		}, ggufvocab.ErrVocabulary, "token 2 has the unknown type 9"},
		{"negative type", bytewise(), func(k gguf.Keys) {
			k["tokenizer.ggml.token_type"].([]int64)[2] = -1
		}, gguf.ErrKey, "tokenizer.ggml.token_type"},
		{"id past the vocabulary", bytewise(), set("ggml.eos_token_id", uint64(10)), ggufvocab.ErrVocabulary, "eos_token_id is 10, the vocabulary has 10"},
		{"id is text", bytewise(), set("ggml.eos_token_id", "x"), gguf.ErrKey, "eos_token_id"},
		{"unknown pre-tokenizer", bytewise(), set("ggml.pre", "viking"), ggufvocab.ErrUnknown, `pre "viking"; known are llama-bpe`},
		{"no pre-tokenizer", bytewise(), without("ggml.pre"), ggufvocab.ErrVocabulary, "pre is missing"},
		{"pre-tokenizer is a number", bytewise(), set("ggml.pre", uint64(1)), gguf.ErrKey, "tokenizer.ggml.pre"},
		{"no merges", bytewise(), without("ggml.merges"), ggufvocab.ErrVocabulary, "merges is missing"},
		{"merges are numbers", bytewise(), set("ggml.merges", []uint64{1}), gguf.ErrKey, "merges"},
		{"merge of one", bytewise(), set("ggml.merges", []string{"ab"}), ggufvocab.ErrVocabulary, `merge 0 is "ab"`},
		{"merge of three", bytewise(), set("ggml.merges", []string{"a b a"}), ggufvocab.ErrVocabulary, "not two tokens"},
		{"first token unknown", bytewise(), set("ggml.add_bos_token", true), ggufvocab.ErrVocabulary, "bos_token_id is missing"},
		{"last token unknown", bytewise(), set("ggml.add_eos_token", true), ggufvocab.ErrVocabulary, "eos_token_id is missing"},
		{"flag is a number", bytewise(), set("ggml.add_eos_token", uint64(1)), gguf.ErrKey, "add_eos_token"},
		{"template is a number", bytewise(), set("chat_template", uint64(1)), gguf.ErrKey, "chat_template"},
		{"template names are numbers", bytewise(), set("chat_templates", uint64(1)), gguf.ErrKey, "chat_templates"},
		{"no scores", spiece(), without("ggml.scores"), ggufvocab.ErrVocabulary, "scores is missing"},
		{"too few scores", spiece(), set("ggml.scores", []float32{1}), ggufvocab.ErrVocabulary, "scores has 1 entries"},
		{"score is no number", spiece(), func(k gguf.Keys) {
			zero := float32(0)
			k["tokenizer.ggml.scores"].([]float32)[4] = zero / zero
		}, ggufvocab.ErrVocabulary, "token 4 has no number"},
		{"spaces squeezed", spiece(), set("ggml.remove_extra_whitespaces", true), ggufvocab.ErrUnknown, "remove_extra_whitespaces"},
		{"endless token", spiece(), func(k gguf.Keys) {
			k["tokenizer.ggml.tokens"].([]string)[4] = strings.Repeat("a", 1<<17)
		}, ggufvocab.ErrVocabulary, "token 4 makes the vocabulary too long"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			k := keys(t, func(b *gguftest.Builder) {
				tt.words.Keys(b, "gpt-2")
				if tt.words.Model == "llama" {
					b.Key("tokenizer.ggml.bos_token_id", uint32(1))
				}
			})
			tt.change(k)
			_, err := ggufvocab.Read(k, 1)
			if !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("err = %v, want %v with %q", err, tt.kind, tt.want)
			}
		})
	}
}

// FuzzRead sends whole files through the reader: what it accepts must be JSON that
// the tokenizer package can judge.
func FuzzRead(f *testing.F) {
	for _, v := range []gguftest.Vocabulary{spiece(), bytewise()} {
		var b gguftest.Builder
		v.Keys(&b, "qwen2")
		b.Key("tokenizer.ggml.bos_token_id", uint32(1))
		b.Key("tokenizer.chat_template", "{{ x }}")
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		h, err := gguf.ParseHeader(bytes.NewReader(content), int64(len(content)))
		if err != nil {
			return
		}
		v, err := ggufvocab.Read(h.Keys, 16)
		if err != nil {
			return
		}
		if !json.Valid(v.Tokenizer) || !json.Valid(v.TokenizerConfig) {
			t.Fatalf("not JSON: %s %s", v.Tokenizer, v.TokenizerConfig)
		}
		if tok, err := tokenizer.Load(v.Tokenizer); err == nil {
			tok.Decode(tok.Encode("ab 11 <end>", true), false)
		}
	})
}
