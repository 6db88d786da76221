package tokenizer

import (
	"encoding/json"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// unicodeForm is one of the four normalization forms.
type unicodeForm norm.Form

// isNewForm reports characters that normalization leaves alone because the
// reference implementation, by which models were trained, has older tables:
// those whose decomposition came after Unicode 11, and U+11930, the second part
// of the one composition.
func isNewForm(r rune) bool {
	switch {
	case r < 0x32FF:
		return false
	case r == 0x32FF, r >= 0xA7F2 && r <= 0xA7F4, r == 0xAB69, r >= 0x10781 && r <= 0x107BA,
		r == 0x11930, r == 0x11938, r >= 0x1E030 && r <= 0x1E06D, r == 0x1F16C, r >= 0x1FBF0 && r <= 0x1FBF9:
		return true
	}
	return false
}

func (f unicodeForm) normalize(p piece) (piece, error) {
	form := norm.Form(f)
	if strings.IndexFunc(p.s, isNewForm) < 0 {
		p.s = form.String(p.s)
		return p, nil
	}
	var b strings.Builder
	for s := p.s; ; {
		i := strings.IndexFunc(s, isNewForm)
		if i < 0 {
			b.WriteString(form.String(s))
			p.s = b.String()
			return p, nil
		}
		b.WriteString(form.String(s[:i]))
		n := charLen(s[i])
		b.WriteString(s[i : i+n])
		s = s[i+n:]
	}
}

// newBertNormalizers spells out BertNormalizer as steps.
func newBertNormalizers(raw json.RawMessage) ([]normalizer, error) {
	j := struct {
		CleanText          bool  `json:"clean_text"`
		HandleChineseChars bool  `json:"handle_chinese_chars"`
		StripAccents       *bool `json:"strip_accents"` // default: as lowercase
		Lowercase          bool  `json:"lowercase"`
	}{CleanText: true, HandleChineseChars: true, Lowercase: true}
	if err := unmarshal(raw, &j); err != nil {
		return nil, err
	}
	var steps []normalizer
	if j.CleanText {
		steps = append(steps, dropRunes(isBertJunk), plainSpaces{})
	}
	if j.HandleChineseChars {
		steps = append(steps, spacedIdeographs{})
	}
	if j.StripAccents == nil && j.Lowercase || j.StripAccents != nil && *j.StripAccents {
		steps = append(steps, unicodeForm(norm.NFD), dropRunes(func(r rune) bool { return unicode.Is(unicode.Mn, r) }))
	}
	if j.Lowercase {
		steps = append(steps, lowercase{})
	}
	return steps, nil
}

// isBertJunk holds for what BERT's cleaning removes: NUL, U+FFFD, and control,
// format and private-use characters except tab and line breaks.
func isBertJunk(r rune) bool {
	switch r {
	case '\t', '\n', '\r':
		return false
	case 0, 0xFFFD:
		return true
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co)
}

// plainSpaces turns every whitespace character into a plain space.
type plainSpaces struct{}

func (plainSpaces) normalize(p piece) (piece, error) {
	p.s = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		return r
	}, p.s)
	return p, nil
}

// spacedIdeographs puts a space on each side of every Chinese character.
type spacedIdeographs struct{}

func (spacedIdeographs) normalize(p piece) (piece, error) {
	if strings.IndexFunc(p.s, isIdeograph) < 0 {
		return p, nil
	}
	var b strings.Builder
	for _, r := range p.s {
		if isIdeograph(r) {
			b.WriteByte(' ')
			b.WriteRune(r)
			b.WriteByte(' ')
		} else {
			b.WriteRune(r)
		}
	}
	p.s = b.String()
	return p, nil
}

// isIdeograph holds for the blocks BERT takes for Chinese characters.
func isIdeograph(r rune) bool {
	switch {
	case r < 0x3400:
		return false
	case r >= 0x4E00 && r <= 0x9FFF, r >= 0x3400 && r <= 0x4DBF, r >= 0x20000 && r <= 0x2A6DF,
		r >= 0x2A700 && r <= 0x2B81F, r >= 0x2B920 && r <= 0x2CEAF, r >= 0xF900 && r <= 0xFAFF, r >= 0x2F800 && r <= 0x2FA1F:
		return true
	}
	return false
}
