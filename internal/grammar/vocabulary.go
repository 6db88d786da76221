package grammar

import (
	"bytes"
	"slices"
	"unicode/utf8"

	"github.com/dynctl/dynctl/internal/grammar/pda"
)

// Vocabulary holds the tokens of a model as bytes.
type Vocabulary struct {
	// Tokens holds the bytes that each id adds to a text. Empty entries never match:
	// special tokens, padding, unknown ids.
	Tokens [][]byte
	// First holds the bytes of those ids that add other bytes at the beginning of a text.
	// Decoders of the SentencePiece family drop a space there, so an id may add nothing.
	First map[uint32][]byte
	// EOS holds the ids that end a text. They are allowed where the grammar may end and
	// never match text.
	EOS []uint32
}

// TokenSource provides the tokens of a vocabulary; *tokenizer.Tokenizer does.
type TokenSource interface {
	VocabSize() int
	TokenBytes(id uint32) []byte
	IsSpecial(id uint32) bool
	Decode(ids []uint32, skipSpecial bool) string
}

// FromTokenizer reads a vocabulary of size ids: the rows of the model's output, which can
// exceed the tokenizer's ids.
func FromTokenizer(src TokenSource, size int, eos []uint32) Vocabulary {
	v := Vocabulary{Tokens: make([][]byte, size), EOS: slices.Clone(eos)}
	for id := range uint32(min(size, src.VocabSize())) {
		if !src.IsSpecial(id) && !slices.Contains(eos, id) {
			v.Tokens[id] = src.TokenBytes(id)
		}
	}
	probe := findProbe(v.Tokens)
	if probe < 0 {
		return v
	}
	after := string(v.Tokens[probe])
	for id, token := range v.Tokens {
		// Decoders change nothing but spaces at the start, and text is only
		// comparable where it is whole characters.
		if len(token) == 0 || token[0] != ' ' || !utf8.Valid(token) {
			continue
		}
		text := src.Decode([]uint32{uint32(id), uint32(probe)}, false)
		first, ok := bytes.CutSuffix([]byte(text), []byte(after))
		if ok && !bytes.Equal(first, token) {
			if v.First == nil {
				v.First = map[uint32][]byte{}
			}
			v.First[uint32(id)] = first
		}
	}
	return v
}

// findProbe returns a token of letters to put after others, or -1.
func findProbe(tokens [][]byte) int {
	return slices.IndexFunc(tokens, func(b []byte) bool {
		rest := bytes.TrimPrefix(b, []byte(" "))
		return len(rest) > 0 && len(bytes.Trim(rest, "abcdefghijklmnopqrstuvwxyz")) == 0
	})
}

// spelling returns the code points that the tokens can spell, nil for all, and the tokens
// that are safe to use.
//
// If every byte is a token by itself, a text can be continued from any byte. If bytes of
// longer characters are missing, a token that ends inside a character could not be
// continued. Then only tokens of whole characters are used, and only characters that are
// tokens by themselves; texts with other characters are removed from grammars.
func spelling(all [][]byte) (tokens [][]byte, spellable []pda.Range) {
	var single [256]bool
	for _, b := range all {
		if len(b) == 1 {
			single[b[0]] = true
		}
	}
	whole := true
	for b := 0x80; b <= 0xF4; b++ {
		if b != 0xC0 && b != 0xC1 { // not in UTF-8
			whole = whole && single[b]
		}
	}
	tokens = all
	if whole && !slices.Contains(single[:0x80], false) {
		return tokens, nil
	}
	for b := range rune(0x80) {
		if single[b] {
			spellable = append(spellable, pda.Range{Lo: b, Hi: b})
		}
	}
	if whole {
		return tokens, append(spellable, pda.Range{Lo: 0x80, Hi: utf8.MaxRune})
	}
	tokens = slices.Clone(tokens)
	var longer []pda.Range
	for id, b := range tokens {
		if !utf8.Valid(b) {
			tokens[id] = nil
			continue
		}
		if r, n := utf8.DecodeRune(b); n > 1 && n == len(b) {
			longer = append(longer, pda.Range{Lo: r, Hi: r})
		}
	}
	slices.SortFunc(longer, func(a, b pda.Range) int { return int(a.Lo - b.Lo) })
	return tokens, append(spellable, slices.Compact(longer)...)
}
