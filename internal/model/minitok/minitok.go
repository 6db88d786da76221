package minitok

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
)

//go:embed tokenizer.json
var tokenizerJSON []byte

//go:embed chat_template.jinja
var chatTemplate string

// The special tokens; they have the last ids of the vocabulary, in this order.
const (
	EndOfText = "<|endoftext|>"
	TurnStart = "<|im_start|>"
	TurnEnd   = "<|im_end|>"
)

func specials() [Specials]string { return [Specials]string{EndOfText, TurnStart, TurnEnd} }

// Specials is the number of special tokens.
const Specials = 3

// MinVocab is the smallest vocabulary: 256 byte tokens and the special ones.
const MinVocab = 256 + Specials

// Tokenizer is the tokenizer cut to a vocabulary size.
type Tokenizer struct {
	merges []string
}

// Load cuts the tokenizer to at most vocab tokens. A larger vocab gives the whole
// tokenizer: the rest of the ids is padding that it does not know.
func Load(vocab int) (*Tokenizer, error) {
	if vocab < MinVocab {
		return nil, fmt.Errorf("load tokenizer: vocabulary of %d is below the %d byte and special tokens", vocab, MinVocab)
	}
	var file struct {
		Model struct {
			Merges []string `json:"merges"`
		} `json:"model"`
	}
	if err := json.Unmarshal(tokenizerJSON, &file); err != nil {
		return nil, fmt.Errorf("load tokenizer: %w", err)
	}
	return &Tokenizer{merges: file.Model.Merges[:min(len(file.Model.Merges), vocab-MinVocab)]}, nil
}

// Size is the number of tokens.
func (t *Tokenizer) Size() int { return MinVocab + len(t.merges) }

// ID finds a special token.
func (t *Tokenizer) ID(special string) (uint32, bool) {
	for i, s := range specials() {
		if s == special {
			return uint32(256 + len(t.merges) + i), true
		}
	}
	return 0, false
}

// Piece is one token of the vocabulary.
type Piece struct {
	Text    string // raw bytes, which need not be whole characters
	Special bool
}

// Pieces lists the tokens by id.
func (t *Tokenizer) Pieces() []Piece {
	pieces := make([]Piece, 0, t.Size())
	for _, b := range byteOrder() {
		pieces = append(pieces, Piece{Text: string([]byte{b})})
	}
	for _, m := range t.merges {
		pieces = append(pieces, Piece{Text: decode(strings.Replace(m, " ", "", 1))})
	}
	for _, s := range specials() {
		pieces = append(pieces, Piece{Text: s, Special: true})
	}
	return pieces
}

// Files gives tokenizer.json and tokenizer_config.json, whose chat template is a
// ChatML one, for a model that sees context tokens. Equal tokenizers give equal
// bytes.
func (t *Tokenizer) Files(context int) (map[string][]byte, error) {
	config, err := json.MarshalIndent(tokenizerConfig{
		ChatTemplate:   chatTemplate,
		EOSToken:       TurnEnd,
		PadToken:       EndOfText,
		ModelMaxLength: context,
		Class:          "PreTrainedTokenizerFast",
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write tokenizer_config.json: %w", err)
	}
	file, err := Marshal(t.merges)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		"tokenizer.json":        file,
		"tokenizer_config.json": append(config, '\n'),
	}, nil
}

type tokenizerConfig struct {
	AddBOS         bool    `json:"add_bos_token"`
	BOSToken       *string `json:"bos_token"`
	ChatTemplate   string  `json:"chat_template"`
	CleanUp        bool    `json:"clean_up_tokenization_spaces"`
	EOSToken       string  `json:"eos_token"`
	ModelMaxLength int     `json:"model_max_length"`
	PadToken       string  `json:"pad_token"`
	Class          string  `json:"tokenizer_class"`
	UNKToken       *string `json:"unk_token"`
}
