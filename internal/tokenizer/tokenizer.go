package tokenizer

import (
	"maps"
	"slices"
	"sync"
)

// Tokenizer encodes and decodes text with one vocabulary. It is immutable and
// safe for concurrent use.
type Tokenizer struct {
	vocab         vocabulary
	rawTokens     *addedMatcher // added tokens that match before normalization
	normTokens    *addedMatcher // and after it
	normalizers   []normalizer
	preTokenizers []preTokenizer
	model         model
	post          postProcessor
	decoder       []decodeStep
	byteDecoder   bool     // the decoder is ByteLevel alone
	raw           []string // then: the bytes of each id
	longest       int      // see longestToken

	encoders sync.Pool // of *encoder
}

// model turns one pre-tokenized piece into ids, appended to e.ids.
type model interface {
	encode(e *encoder, s string)
}

// Encode returns the ids of text. Added tokens written in the text, special
// ones included, are recognized; addSpecial makes the post-processor add its
// own, such as a first token. Text that is not UTF-8 counts as having U+FFFD in
// place of each maximal ill-formed part.
//
// Encode cannot fail: it ignores the two errors of [Tokenizer.EncodeChecked].
func (t *Tokenizer) Encode(text string, addSpecial bool) []uint32 {
	return t.EncodeTo(nil, text, addSpecial)
}

// EncodeTo does what Encode does and appends to dst.
func (t *Tokenizer) EncodeTo(dst []uint32, text string, addSpecial bool) []uint32 {
	ids, _ := t.EncodeChecked(dst, text, addSpecial)
	return ids
}

// EncodeChecked does what EncodeTo does and reports the errors that Encode ignores.
// ErrPatternTimeout: a pattern of the file ran out of time, so part of the text was not
// split. ErrUnknownText: characters outside the vocabulary were dropped because the model
// has no unknown token.
func (t *Tokenizer) EncodeChecked(dst []uint32, text string, addSpecial bool) ([]uint32, error) {
	return t.encodeTemplate(dst, t.post.single, text, "", addSpecial)
}

// EncodePair encodes a pair of texts with the file's template for pairs.
func (t *Tokenizer) EncodePair(a, b string, addSpecial bool) []uint32 {
	ids, _ := t.encodeTemplate(nil, t.post.pair, a, b, addSpecial)
	return ids
}

func (t *Tokenizer) encodeTemplate(dst []uint32, template []templatePart, a, b string, addSpecial bool) ([]uint32, error) {
	e := t.encoders.Get().(*encoder)
	defer e.release()
	return e.template(dst, template, a, b, addSpecial)
}

// template encodes the parts of a template.
func (e *encoder) template(dst []uint32, template []templatePart, a, b string, addSpecial bool) ([]uint32, error) {
	e.ids = dst
	for _, part := range template {
		switch part.sequence {
		case sequenceA:
			e.text(toValid(a))
		case sequenceB:
			e.text(toValid(b))
		default:
			if addSpecial {
				e.ids = append(e.ids, part.ids...)
			}
		}
		if e.full() {
			break
		}
	}
	return e.ids, e.err
}

// Decode returns the text of ids. With skipSpecial, special tokens leave no
// text. Ids outside the vocabulary are skipped; bytes that are not UTF-8 come
// out as U+FFFD.
func (t *Tokenizer) Decode(ids []uint32, skipSpecial bool) string {
	s := t.newStream(skipSpecial, true)
	s.push(ids)
	return s.Flush()
}

// VocabSize returns the largest id plus one. A model's embedding can be larger (padding),
// never smaller.
func (t *Tokenizer) VocabSize() int { return len(t.vocab.tokens) }

// TokenID returns the id of a token, spelled as in the file.
func (t *Tokenizer) TokenID(content string) (uint32, bool) {
	id, ok := t.vocab.ids[content]
	return id, ok
}

// Token returns the file's spelling of id; ok is false if there is no such
// token.
func (t *Tokenizer) Token(id uint32) (content string, ok bool) {
	return t.vocab.token(id)
}

// IsSpecial reports whether id is a special token, which Decode can leave out.
func (t *Tokenizer) IsSpecial(id uint32) bool {
	return int64(id) < int64(len(t.vocab.special)) && t.vocab.special[id]
}

// TokenBytes returns the bytes that id contributes to a text when it is not the first
// token, or nil for an unknown id. They need not be whole characters.
func (t *Tokenizer) TokenBytes(id uint32) []byte {
	content, ok := t.Token(id)
	if !ok {
		return nil
	}
	b := []byte(content)
	for _, step := range t.decoder {
		b = step.middle(b)
	}
	return b
}

// AddedTokens returns the tokens that are matched in text as a whole, in order of id.
func (t *Tokenizer) AddedTokens() []AddedToken {
	out := make([]AddedToken, 0, len(t.vocab.added))
	for _, id := range slices.Sorted(maps.Keys(t.vocab.added)) {
		out = append(out, *t.vocab.added[id])
	}
	return out
}
