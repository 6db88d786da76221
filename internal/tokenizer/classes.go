package tokenizer

import (
	"sync"
	"unicode"
	"unicode/utf8"
)

// class is a set of character properties, one bit each.
type class uint16

const (
	clLetter     class = 1 << iota // general category L
	clMark                         // M
	clNumber                       // N
	clPunct                        // P
	clSymbol                       // S
	clSpace                        // White_Space
	clNewline                      // CR, LF
	clUpper                        // Lu, Lt, Lm, Lo, M: what may begin a word in the o200k pattern
	clLower                        // Ll, Lm, Lo, M: what may end it
	clWord                         // \w: alphabetic, mark, decimal digit, connector, joiner
	clASCIIPunct                   // the 32 ASCII punctuation characters
)

// classTable answers class questions about a character in a few loads: one page
// of 256 entries per block, equal pages shared.
type classTable struct {
	ascii [utf8.RuneSelf]class
	index [(unicode.MaxRune + 1) >> 8]uint16
	pages [][256]class
}

// of returns the class of r.
func (t *classTable) of(r rune) class { return t.pages[t.index[r>>8]][r&0xFF] }

// at returns the class and the length in bytes of the character at s[i].
func (t *classTable) at(s string, i int) (class, int) {
	if b := s[i]; b < utf8.RuneSelf {
		return t.ascii[b], 1
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	return t.of(r), n
}

// run returns the end of the longest run, from s[i], of characters that have
// one of the bits in want.
func (t *classTable) run(s string, i int, want class) int {
	for i < len(s) {
		c, n := t.at(s, i)
		if c&want == 0 {
			break
		}
		i += n
	}
	return i
}

// runOutside is run for characters that have none of the bits.
func (t *classTable) runOutside(s string, i int, unwanted class) int {
	for i < len(s) {
		c, n := t.at(s, i)
		if c&unwanted != 0 {
			break
		}
		i += n
	}
	return i
}

// classes builds the table on first use and shares it; nothing writes to it
// afterwards.
var classes = sync.OnceValue(buildClasses)

func buildClasses() *classTable {
	flat := make([]class, unicode.MaxRune+1)
	mark := func(bits class, tables ...*unicode.RangeTable) {
		for _, t := range tables {
			for _, r := range t.R16 {
				for c := uint32(r.Lo); c <= uint32(r.Hi); c += uint32(r.Stride) {
					flat[c] |= bits
				}
			}
			for _, r := range t.R32 {
				for c := r.Lo; c <= r.Hi; c += r.Stride {
					flat[c] |= bits
				}
			}
		}
	}
	mark(clLetter, unicode.L)
	mark(clMark, unicode.M)
	mark(clNumber, unicode.N)
	mark(clPunct, unicode.P)
	mark(clSymbol, unicode.S)
	mark(clSpace, unicode.White_Space)
	mark(clUpper, unicode.Lu, unicode.Lt, unicode.Lm, unicode.Lo, unicode.M)
	mark(clLower, unicode.Ll, unicode.Lm, unicode.Lo, unicode.M)
	mark(clWord, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic, unicode.Join_Control)
	for _, r := range unicode16 {
		for c := r.lo; c <= r.hi; c++ {
			flat[c] |= r.bits
		}
	}
	flat['\r'] |= clNewline
	flat['\n'] |= clNewline
	for c := range utf8.RuneSelf {
		if flat[c]&(clPunct|clSymbol) != 0 {
			flat[c] |= clASCIIPunct
		}
	}

	t := &classTable{}
	copy(t.ascii[:], flat)
	seen := make(map[[256]class]uint16)
	for i := range t.index {
		page := [256]class(flat[i<<8:])
		n, ok := seen[page]
		if !ok {
			n = uint16(len(t.pages))
			seen[page] = n
			t.pages = append(t.pages, page)
		}
		t.index[i] = n
	}
	return t
}

const (
	newMark     = clMark | clUpper | clLower | clWord
	newDigit    = clNumber | clWord
	newPunct    = clPunct
	newSymbol   = clSymbol
	newUpper    = clLetter | clUpper | clWord
	newLower    = clLetter | clLower | clWord
	newCaseless = clLetter | clUpper | clLower | clWord
)

// unicode16 lists what Unicode 15.1 and 16.0 added, because models are trained
// with tokenizers that know these characters and Go's tables end at 15.0.
var unicode16 = []struct {
	lo, hi rune
	bits   class
}{
	{0x897, 0x897, newMark}, {0x1B4E, 0x1B4F, newPunct}, {0x1B7F, 0x1B7F, newPunct},
	{0x1C89, 0x1C89, newUpper}, {0x1C8A, 0x1C8A, newLower}, {0x2427, 0x2429, newSymbol},
	{0x2FFC, 0x2FFF, newSymbol}, {0x31E4, 0x31E5, newSymbol}, {0x31EF, 0x31EF, newSymbol},
	{0xA7CB, 0xA7CC, newUpper}, {0xA7CD, 0xA7CD, newLower}, {0xA7DA, 0xA7DA, newUpper},
	{0xA7DB, 0xA7DB, newLower}, {0xA7DC, 0xA7DC, newUpper}, {0x105C0, 0x105F3, newCaseless},
	{0x10D40, 0x10D49, newDigit}, {0x10D4A, 0x10D4D, newCaseless}, {0x10D4E, 0x10D4E, newCaseless},
	{0x10D4F, 0x10D4F, newCaseless}, {0x10D50, 0x10D65, newUpper}, {0x10D69, 0x10D6D, newMark},
	{0x10D6E, 0x10D6E, newPunct}, {0x10D6F, 0x10D6F, newCaseless}, {0x10D70, 0x10D85, newLower},
	{0x10D8E, 0x10D8F, newSymbol}, {0x10EC2, 0x10EC4, newCaseless}, {0x10EFC, 0x10EFC, newMark},
	{0x11380, 0x11389, newCaseless}, {0x1138B, 0x1138B, newCaseless}, {0x1138E, 0x1138E, newCaseless},
	{0x11390, 0x113B5, newCaseless}, {0x113B7, 0x113B7, newCaseless}, {0x113B8, 0x113C0, newMark},
	{0x113C2, 0x113C2, newMark}, {0x113C5, 0x113C5, newMark}, {0x113C7, 0x113CA, newMark},
	{0x113CC, 0x113D0, newMark}, {0x113D1, 0x113D1, newCaseless}, {0x113D2, 0x113D2, newMark},
	{0x113D3, 0x113D3, newCaseless}, {0x113D4, 0x113D5, newPunct}, {0x113D7, 0x113D8, newPunct},
	{0x113E1, 0x113E2, newMark}, {0x116D0, 0x116E3, newDigit}, {0x11BC0, 0x11BE0, newCaseless},
	{0x11BE1, 0x11BE1, newPunct}, {0x11BF0, 0x11BF9, newDigit}, {0x11F5A, 0x11F5A, newMark},
	{0x13460, 0x143FA, newCaseless}, {0x16100, 0x1611D, newCaseless}, {0x1611E, 0x1612F, newMark},
	{0x16130, 0x16139, newDigit}, {0x16D40, 0x16D42, newCaseless}, {0x16D43, 0x16D6A, newCaseless},
	{0x16D6B, 0x16D6C, newCaseless}, {0x16D6D, 0x16D6F, newPunct}, {0x16D70, 0x16D79, newDigit},
	{0x18CFF, 0x18CFF, newCaseless}, {0x1CC00, 0x1CCEF, newSymbol}, {0x1CCF0, 0x1CCF9, newDigit},
	{0x1CD00, 0x1CEB3, newSymbol}, {0x1E5D0, 0x1E5ED, newCaseless}, {0x1E5EE, 0x1E5EF, newMark},
	{0x1E5F0, 0x1E5F0, newCaseless}, {0x1E5F1, 0x1E5FA, newDigit}, {0x1E5FF, 0x1E5FF, newPunct},
	{0x1F8B2, 0x1F8BB, newSymbol}, {0x1F8C0, 0x1F8C1, newSymbol}, {0x1FA89, 0x1FA89, newSymbol},
	{0x1FA8F, 0x1FA8F, newSymbol}, {0x1FABE, 0x1FABE, newSymbol}, {0x1FAC6, 0x1FAC6, newSymbol},
	{0x1FADC, 0x1FADC, newSymbol}, {0x1FADF, 0x1FADF, newSymbol}, {0x1FAE9, 0x1FAE9, newSymbol},
	{0x1FBCB, 0x1FBEF, newSymbol}, {0x2EBF0, 0x2EE5D, newCaseless},
}
