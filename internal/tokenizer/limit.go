package tokenizer

import (
	"errors"
	"runtime"
)

// ErrTooManyTokens is returned by EncodeLimit when a text has more tokens than allowed.
var ErrTooManyTokens = errors.New("too many tokens")

// EncodeLimit does what EncodeChecked does, but stops as soon as the text is known to
// have more than most tokens. It then returns ErrTooManyTokens and some of the first ids.
func (t *Tokenizer) EncodeLimit(dst []uint32, text string, addSpecial bool, most int) ([]uint32, error) {
	if t.FewestTokens(len(text)) > most {
		return dst, ErrTooManyTokens
	}
	e := t.encoders.Get().(*encoder)
	defer e.release()
	e.limited, e.most = true, len(dst)+most
	return e.template(dst, t.post.single, text, "", addSpecial)
}

// FewestTokens returns the least number of tokens of a text with the given number of
// bytes. It returns 0 if the tokenizer may drop parts of a text, because no bound is
// known then.
func (t *Tokenizer) FewestTokens(bytes int) int {
	if t.longest == 0 {
		return 0
	}
	return (bytes + t.longest - 1) / t.longest
}

// LongestToken returns the most bytes of a text that one token can stand for, or 0 if
// there is no bound.
func (t *Tokenizer) LongestToken() int { return t.longest }

// longestToken computes LongestToken.
func (t *Tokenizer) longestToken() int {
	m, ok := t.model.(*bpe)
	if !ok || !m.everyByte {
		return 0 // an unknown word of any length is one token, or none
	}
	longest := m.longest
	for _, a := range t.vocab.added {
		if a.LStrip || a.RStrip {
			return 0 // with any amount of white space
		}
		longest = max(longest, len(a.Content))
	}
	for _, n := range t.normalizers {
		shrinks := shrinkage(n)
		if shrinks == 0 {
			return 0
		}
		longest *= shrinks
	}
	for _, p := range t.preTokenizers {
		switch p := p.(type) {
		case scanStep, *byteLevelStep, *metaspace:
		case *splitStep:
			if p.behavior == removed {
				return 0
			}
		default:
			return 0
		}
	}
	return longest
}

// shrinkage returns how many bytes a normalizer turns into one at most, 0 for any number.
func shrinkage(n normalizer) int {
	switch n := n.(type) {
	case unicodeForm:
		return 4 // a bold letter of mathematics becomes a plain one
	case lowercase:
		return 3
	case prepend, byteAlphabetNormalizer:
		return 1
	case replaceNormalizer:
		if f, ok := n.finder.(literalFinder); ok && len(n.content) > 0 {
			return (len(f) + len(n.content) - 1) / len(n.content)
		}
	}
	return 0
}

// yieldEvery is the number of pieces of a text that are encoded before the goroutine
// yields, because encoding a long text is not urgent.
const yieldEvery = 1024

// breathe yields the processor now and then.
func (e *encoder) breathe() {
	if e.pieces++; e.pieces%yieldEvery == 0 {
		runtime.Gosched()
	}
}

// full reports whether there are more tokens than the limit.
func (e *encoder) full() bool {
	if e.limited && len(e.ids) > e.most {
		e.overflow()
	}
	return e.over
}

// overflow ends the encoding with ErrTooManyTokens.
func (e *encoder) overflow() {
	e.over, e.err = true, ErrTooManyTokens // overrides earlier errors
}

// room returns how many more tokens are allowed.
func (e *encoder) room() int { return e.most - len(e.ids) }

// countFrom is the size in bytes from which the tokens of a piece are counted by what the
// vocabulary has, which takes about as long as to merge them, in place of by its longest token.
const countFrom = 1 << 10

// tooLong reports whether a piece of a text, as the model gets it, certainly has more tokens
// than there is room for. To encode a long piece takes memory for each of its bytes, and time.
// longest is the most bytes of it that a token can stand for, 0 for no bound. at is as for
// fewestTokens.
func (e *encoder) tooLong(s string, longest int, at func(s string, i int) (bytes int, free bool)) bool {
	if !e.limited {
		return e.over
	}
	room := e.room()
	if longest > 0 && len(s)/longest > room || len(s) >= countFrom && fewestTokens(s, room, at) > room {
		e.overflow()
	}
	return e.over
}

// fewestTokens returns a lower bound of the number of tokens in s, or most+1 if it is larger.
// at returns the bytes of the longest token at a place, and whether text from there may be in
// no token of its own. The bound lets a token begin anywhere in the one before.
func fewestTokens(s string, most int, at func(s string, i int) (bytes int, free bool)) (count int) {
	reach, next := 0, 0 // how far count tokens may go, and one more
	for i := 0; i < len(s) && count <= most; i++ {
		n, free := at(s, i)
		next = max(next, i+n)
		if free {
			reach = max(reach, i+1)
		}
		if i >= reach {
			count++
			reach = next
		}
	}
	return count
}
