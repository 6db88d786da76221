package minitok

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// splitPattern is the one of the Qwen2 tokenizers.
const splitPattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

// SplitPattern is the regular expression that cuts text into pieces before BPE.
func SplitPattern() string { return splitPattern }

// Marshal writes the tokenizer.json of the given merges, each "left right" in the
// byte alphabet. Merge i makes the token with id 256 + i, so no two merges may
// make the same token.
func Marshal(merges []string) ([]byte, error) {
	var vocab orderedObject
	for _, b := range byteOrder() {
		vocab = append(vocab, Encode(string([]byte{b})))
	}
	for _, m := range merges {
		vocab = append(vocab, strings.Replace(m, " ", "", 1))
	}
	var added []addedToken
	for i, s := range specials() {
		added = append(added, addedToken{ID: len(vocab) + i, Content: s, Special: true})
	}
	byteLevel := byteLevel{Type: "ByteLevel"}
	file := tokenizerFile{
		Version:    "1.0",
		Added:      added,
		Normalizer: typeOnly{"NFC"},
		PreTokenizer: sequence{"Sequence", []any{
			split{Type: "Split", Pattern: pattern{splitPattern}, Behavior: "Isolated"},
			byteLevel,
		}},
		PostProcessor: byteLevel,
		Decoder:       byteLevel,
		Model:         bpe{Type: "BPE", Vocab: vocab, Merges: merges},
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	if err := enc.Encode(file); err != nil {
		return nil, fmt.Errorf("write tokenizer.json: %w", err)
	}
	return out.Bytes(), nil
}

// orderedObject is a vocabulary: a JSON object from token to position, in order
// of position.
type orderedObject []string

// MarshalJSON writes the tokens in order; a map would be sorted by spelling.
func (o orderedObject) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	seen := make(map[string]bool, len(o))
	for i, key := range o {
		if seen[key] {
			return nil, fmt.Errorf("token %q twice", key)
		}
		seen[key] = true
		out.WriteByte("{,"[min(i, 1)])
		if err := enc.Encode(key); err != nil {
			return nil, err
		}
		fmt.Fprintf(&out, ":%d", i)
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

type tokenizerFile struct {
	Version       string       `json:"version"`
	Truncation    *struct{}    `json:"truncation"`
	Padding       *struct{}    `json:"padding"`
	Added         []addedToken `json:"added_tokens"`
	Normalizer    typeOnly     `json:"normalizer"`
	PreTokenizer  sequence     `json:"pre_tokenizer"`
	PostProcessor byteLevel    `json:"post_processor"`
	Decoder       byteLevel    `json:"decoder"`
	Model         bpe          `json:"model"`
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

type typeOnly struct {
	Type string `json:"type"`
}

type sequence struct {
	Type string `json:"type"`
	List []any  `json:"pretokenizers"`
}

type split struct {
	Type     string  `json:"type"`
	Pattern  pattern `json:"pattern"`
	Behavior string  `json:"behavior"`
	Invert   bool    `json:"invert"`
}

type pattern struct {
	Regex string `json:"Regex"`
}

type byteLevel struct {
	Type        string `json:"type"`
	PrefixSpace bool   `json:"add_prefix_space"`
	TrimOffsets bool   `json:"trim_offsets"`
	UseRegex    bool   `json:"use_regex"`
}

type bpe struct {
	Type         string        `json:"type"`
	Dropout      *float64      `json:"dropout"`
	Unknown      *string       `json:"unk_token"`
	Prefix       *string       `json:"continuing_subword_prefix"`
	Suffix       *string       `json:"end_of_word_suffix"`
	FuseUnknown  bool          `json:"fuse_unk"`
	ByteFallback bool          `json:"byte_fallback"`
	IgnoreMerges bool          `json:"ignore_merges"`
	Vocab        orderedObject `json:"vocab"`
	Merges       []string      `json:"merges"`
}
