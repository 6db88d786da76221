package ggufvocab

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/dynctl/dynctl/internal/model/gguf"
)

// tokenizerFile is the content of tokenizer.json.
type tokenizerFile struct {
	Version       string       `json:"version"`
	Added         []addedToken `json:"added_tokens"`
	Normalizer    any          `json:"normalizer"`
	PreTokenizer  any          `json:"pre_tokenizer"`
	PostProcessor any          `json:"post_processor"`
	Decoder       any          `json:"decoder"`
	Model         bpeModel     `json:"model"`
}

type addedToken struct {
	ID         int    `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

type bpeModel struct {
	Type         string         `json:"type"`
	Unknown      *string        `json:"unk_token"`
	FuseUnknown  bool           `json:"fuse_unk"`
	ByteFallback bool           `json:"byte_fallback"`
	IgnoreMerges bool           `json:"ignore_merges"`
	Vocab        map[string]int `json:"vocab"`
	Merges       [][]string     `json:"merges"`
}

// object is one component of a tokenizer.
type object = map[string]any

func sequence(list string, parts ...any) object {
	return object{"type": "Sequence", list: parts}
}

// postProcessor puts the first and last token around a plain text.
func (w *words) postProcessor() (any, error) {
	text := object{"Sequence": object{"id": "A", "type_id": 0}}
	single, specials := []any{text}, object{}
	for _, add := range []struct {
		want bool
		role string
	}{{w.bos, "bos_token"}, {w.eos, "eos_token"}} {
		if !add.want {
			continue
		}
		id, ok := w.roles[add.role]
		if !ok {
			return nil, badf("a %s shall be added, but %s%s_id is missing", add.role, keyPrefix, add.role)
		}
		token := w.tokens[id]
		specials[token] = object{"id": token, "ids": []uint32{id}, "tokens": []string{token}}
		part := object{"SpecialToken": object{"id": token, "type_id": 0}}
		if add.role == "bos_token" {
			single = append([]any{part}, single...)
		} else {
			single = append(single, part)
		}
	}
	if len(single) == 1 {
		return nil, nil
	}
	second := object{"Sequence": object{"id": "B", "type_id": 1}}
	pair := append(append([]any{}, single...), second)
	return object{"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": specials}, nil
}

// config makes tokenizer_config.json.
func (w *words) config(keys gguf.Keys, context int) ([]byte, error) {
	c := object{
		"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": context, "clean_up_tokenization_spaces": false,
		"add_bos_token": w.bos, "add_eos_token": w.eos,
	}
	for _, role := range []string{"bos_token", "eos_token", "unk_token", "pad_token"} {
		if id, ok := w.roles[role]; ok {
			c[role] = w.tokens[id]
		}
	}
	template, err := chatTemplate(keys)
	if err != nil {
		return nil, err
	}
	if template != nil {
		c["chat_template"] = template
	}
	return encode(c)
}

const templateKey = "tokenizer.chat_template"

// chatTemplate gives the template, or a list of the named ones with it; nil if the
// file has none.
func chatTemplate(keys gguf.Keys) (any, error) {
	text, hasDefault, err := keys.Text(templateKey)
	if err != nil {
		return nil, err
	}
	names, _, err := keys.Texts("tokenizer.chat_templates")
	if err != nil {
		return nil, err
	}
	var list []object
	if hasDefault {
		list = append(list, object{"name": "default", "template": text})
	}
	for _, name := range names {
		named, ok, err := keys.Text(templateKey + "." + name)
		if err != nil {
			return nil, err
		}
		if ok && name != "default" {
			list = append(list, object{"name": name, "template": named})
		}
	}
	switch {
	case len(list) == 0:
		return nil, nil
	case len(list) == 1 && hasDefault:
		return text, nil
	}
	return list, nil
}

// encode writes JSON with one component or key a line; maps come out sorted, so
// equal keys give equal bytes.
func encode(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("write tokenizer: %w", err)
	}
	return out.Bytes(), nil
}
