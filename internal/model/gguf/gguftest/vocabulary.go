package gguftest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Vocabulary holds the tokenizer keys of a GGUF file.
type Vocabulary struct {
	Model  string // "gpt2" for byte-level BPE, "llama" for SentencePiece
	Tokens []string
	Types  []int32
	Scores []float32 // llama
	Merges []string  // gpt2
}

// ReadVocabulary takes the vocabulary of a tokenizer.json whose model is BPE, as the
// usual converters do. Unused ids up to rows are padding. The order of
// merges becomes scores where the tokenizer is not one of bytes.
func ReadVocabulary(t testing.TB, tokenizer []byte, rows int) Vocabulary {
	t.Helper()
	var file struct {
		Added []struct {
			ID      int
			Content string
			Special bool
		} `json:"added_tokens"`
		Model struct {
			Unknown      string `json:"unk_token"`
			ByteFallback bool   `json:"byte_fallback"`
			Vocab        map[string]int
			Merges       []json.RawMessage
		}
	}
	if err := json.Unmarshal(tokenizer, &file); err != nil {
		t.Fatal(err)
	}
	v := Vocabulary{Model: "gpt2"}
	if file.Model.Unknown != "" {
		v.Model = "llama"
	}
	set := func(id int, token string, kind int32) {
		for len(v.Tokens) <= id {
			v.Tokens = append(v.Tokens, fmt.Sprintf("[PAD%d]", len(v.Tokens)))
			v.Types = append(v.Types, 5)
		}
		v.Tokens[id], v.Types[id] = token, kind
	}
	for token, id := range file.Model.Vocab {
		kind := int32(1)
		if v.Model == "llama" && len(token) == 6 && strings.HasPrefix(token, "<0x") {
			kind = 6
		}
		set(id, token, kind)
	}
	for _, a := range file.Added {
		kind := int32(4)
		switch {
		case v.Model == "llama" && a.Content == file.Model.Unknown:
			kind = 2
		case a.Special:
			kind = 3
		}
		set(a.ID, a.Content, kind)
	}
	if len(v.Tokens) < rows {
		set(rows-1, fmt.Sprintf("[PAD%d]", rows-1), 5)
	}
	v.Scores = make([]float32, len(v.Tokens))
	for rank, raw := range file.Model.Merges {
		var pair []string
		var text string
		if json.Unmarshal(raw, &pair) != nil {
			if err := json.Unmarshal(raw, &text); err != nil {
				t.Fatal(err)
			}
			pair = strings.SplitN(text, " ", 2)
		}
		v.Merges = append(v.Merges, strings.Join(pair, " "))
		if id := file.Model.Vocab[strings.Join(pair, "")]; v.Scores[id] == 0 {
			v.Scores[id] = -float32(rank + 1)
		}
	}
	return v
}

// Keys adds the keys of the vocabulary. pre names how text is cut; for "llama"
// there is none.
func (v Vocabulary) Keys(b *Builder, pre string) {
	b.Key("tokenizer.ggml.model", v.Model)
	b.Key("tokenizer.ggml.tokens", v.Tokens)
	b.Key("tokenizer.ggml.token_type", v.Types)
	if v.Model == "llama" {
		b.Key("tokenizer.ggml.scores", v.Scores)
		return
	}
	b.Key("tokenizer.ggml.pre", pre)
	b.Key("tokenizer.ggml.merges", v.Merges)
}

// ID is the id of a token.
func (v Vocabulary) ID(t testing.TB, token string) uint32 {
	t.Helper()
	id := slices.Index(v.Tokens, token)
	if id < 0 {
		t.Fatalf("no token %q", token)
	}
	return uint32(id)
}
