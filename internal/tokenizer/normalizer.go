package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// normalizer rewrites a piece. It also keeps piece.first up to date: a piece
// whose first characters were removed no longer begins where the text does. On
// an error the returned piece is still usable.
type normalizer interface {
	normalize(p piece) (piece, error)
}

// newNormalizers compiles the file's normalizer into the list of its steps.
func newNormalizers(raw json.RawMessage, depth int) ([]normalizer, error) {
	typ, err := componentType(raw, depth)
	if err != nil || typ == "" {
		return nil, err
	}
	one := func(n normalizer, err error) ([]normalizer, error) { return []normalizer{n}, err }
	switch typ {
	case "Sequence":
		var j struct{ Normalizers []json.RawMessage }
		if err := unmarshal(raw, &j); err != nil {
			return nil, err
		}
		var all []normalizer
		for i, r := range j.Normalizers {
			steps, err := newNormalizers(r, depth+1)
			if err != nil {
				return nil, fmt.Errorf("item %d: %w", i, err)
			}
			all = append(all, steps...)
		}
		return all, checkGrowth(all)
	case "NFC":
		return one(unicodeForm(norm.NFC), nil)
	case "NFD":
		return one(unicodeForm(norm.NFD), nil)
	case "NFKC":
		return one(unicodeForm(norm.NFKC), nil)
	case "NFKD":
		return one(unicodeForm(norm.NFKD), nil)
	case "Lowercase":
		return one(lowercase{}, nil)
	case "StripAccents":
		return one(dropRunes(unicode.IsMark), nil)
	case "ByteLevel":
		return one(byteAlphabetNormalizer{}, nil)
	case "Strip":
		j := struct {
			StripLeft  bool `json:"strip_left"`
			StripRight bool `json:"strip_right"`
		}{}
		err := unmarshal(raw, &j)
		return one(stripSpace{j.StripLeft, j.StripRight}, err)
	case "Prepend":
		var j struct{ Prepend string }
		err := unmarshal(raw, &j)
		if len(j.Prepend) > maxGrowth {
			err = fmt.Errorf("%w: prepended text of %d bytes", ErrTooLarge, len(j.Prepend))
		}
		return one(prepend(j.Prepend), err)
	case "Replace":
		f, content, err := newReplace(raw)
		return one(replaceNormalizer{f, content}, err)
	case "BertNormalizer":
		return newBertNormalizers(raw)
	case "Precompiled":
		return one(newPrecompiled(raw))
	}
	return nil, fmt.Errorf("%w: normalizer type %q", ErrUnknownComponent, typ)
}

// newReplace reads the settings shared by the Replace normalizer and decoder.
func newReplace(raw json.RawMessage) (finder, string, error) {
	var j struct {
		Pattern json.RawMessage
		Content string
	}
	if err := unmarshal(raw, &j); err != nil {
		return nil, "", err
	}
	f, err := newFinder(j.Pattern)
	if err == nil && growth(f, j.Content) > maxGrowth {
		err = fmt.Errorf("%w: replacement of %d bytes", ErrTooLarge, len(j.Content))
	}
	return f, j.Content, err
}

// maxGrowth bounds how many times as long all replacements of a component
// together can make a text.
const maxGrowth = 4096

// growth bounds how many times as long one replacement can make a text.
func growth(f finder, content string) int {
	switch f := f.(type) {
	case literalFinder:
		return max(1, (len(content)+len(f)-1)/max(1, len(f)))
	case spacesFinder:
		return max(1, len(content)/2)
	}
	if content == "" {
		return 1
	}
	return len(content) + 1 // an empty match adds without removing
}

func checkGrowth(steps []normalizer) error {
	total := 1
	for _, s := range steps {
		if r, ok := s.(replaceNormalizer); ok {
			if total *= growth(r.finder, r.content); total > maxGrowth {
				return fmt.Errorf("%w: replacements can make text %d times as long", ErrTooLarge, total)
			}
		}
	}
	return nil
}

type replaceNormalizer struct {
	finder  finder
	content string
}

func (r replaceNormalizer) normalize(p piece) (piece, error) {
	if pattern, ok := r.finder.(literalFinder); ok && len(pattern) == 1 && r.content != "" {
		p.s = strings.ReplaceAll(p.s, string(pattern), r.content)
		return p, nil
	}
	matches, err := r.finder.spans(nil, p.s)
	if len(matches) == 0 {
		return p, err
	}
	if m := matches[0]; m.start == 0 && m.end > 0 && (r.content == "" || m.end > charLen(p.s[0])) {
		p.first = false // the replacement stands for the last character it replaced
	}
	p.s = replaceSpans(p.s, matches, r.content)
	return p, err
}

func replaceSpans(s string, matches []span, content string) string {
	var b strings.Builder
	b.Grow(len(s))
	at := 0
	for _, m := range matches {
		b.WriteString(s[at:m.start])
		b.WriteString(content)
		at = m.end
	}
	b.WriteString(s[at:])
	return b.String()
}

// prepend puts a text before any piece that is not empty.
type prepend string

func (n prepend) normalize(p piece) (piece, error) {
	if p.s != "" {
		p.s = string(n) + p.s
	}
	return p, nil
}

type stripSpace struct{ left, right bool }

func (n stripSpace) normalize(p piece) (piece, error) {
	if n.left {
		s := strings.TrimLeftFunc(p.s, unicode.IsSpace)
		p.first = p.first && len(s) == len(p.s)
		p.s = s
	}
	if n.right {
		p.s = strings.TrimRightFunc(p.s, unicode.IsSpace)
	}
	return p, nil
}

// dropRunes removes the characters it holds for.
type dropRunes func(rune) bool

func (drop dropRunes) normalize(p piece) (piece, error) {
	if p.s == "" {
		return p, nil
	}
	if r, _ := utf8.DecodeRuneInString(p.s); drop(r) {
		p.first = false
	}
	p.s = strings.Map(func(r rune) rune {
		if drop(r) {
			return -1
		}
		return r
	}, p.s)
	return p, nil
}

type byteAlphabetNormalizer struct{}

func (byteAlphabetNormalizer) normalize(p piece) (piece, error) {
	p.s = toAlphabet(p.s)
	return p, nil
}

// lowercase maps each character by itself, so no final sigma; U+0130 is the
// only one that becomes two.
type lowercase struct{}

func (lowercase) normalize(p piece) (piece, error) {
	s := p.s
	if strings.Contains(s, "\u0130") {
		s = strings.ReplaceAll(s, "\u0130", "i\u0307")
	}
	p.s = strings.Map(unicode.ToLower, s)
	return p, nil
}
