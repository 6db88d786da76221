package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

func (m *bpe) byteSymbols(buf *symbolBuf, s string) {
	for i := range len(s) {
		buf.ids = append(buf.ids, m.byteIDs[s[i]])
	}
}

// runeSymbols appends the symbols of s; ok is false if it had to drop some.
func (m *bpe) runeSymbols(buf *symbolBuf, s string) (ok bool) {
	ok = true
	unknown := 0 // unknown characters not yet written
	for i, r := range s {
		if id, known := m.runes.get(r); known {
			unknown = m.flushUnknown(buf, unknown)
			buf.ids = append(buf.ids, id)
			continue
		}
		unknown, ok = m.unknownSymbol(buf, s[i:i+utf8.RuneLen(r)], unknown, ok)
	}
	m.flushUnknown(buf, unknown)
	return ok
}

// affixSymbols is runeSymbols for models that mark the position in the word.
func (m *bpe) affixSymbols(buf *symbolBuf, s string) (ok bool) {
	ok = true
	unknown := 0
	for i, r := range s {
		end := i + utf8.RuneLen(r)
		symbol := s[i:end]
		if i > 0 {
			symbol = m.prefix + symbol
		}
		if end == len(s) {
			symbol += m.suffix
		}
		if id, known := m.ids[symbol]; known {
			unknown = m.flushUnknown(buf, unknown)
			buf.ids = append(buf.ids, id)
			continue
		}
		unknown, ok = m.unknownSymbol(buf, symbol, unknown, ok)
	}
	m.flushUnknown(buf, unknown)
	return ok
}

// unknownSymbol writes the byte tokens of an unknown symbol, or counts it. The
// count is written only before the next known symbol, so byte tokens of later
// symbols can come first: that is what the reference does.
func (m *bpe) unknownSymbol(buf *symbolBuf, symbol string, unknown int, ok bool) (int, bool) {
	if m.byteFallback {
		all := true
		for i := range len(symbol) {
			all = all && m.bytes[symbol[i]] >= 0
		}
		if all {
			for i := range len(symbol) {
				buf.ids = append(buf.ids, uint32(m.bytes[symbol[i]]))
			}
			return unknown, ok
		}
	}
	if m.unknown < 0 {
		return 0, false
	}
	if unknown > 0 && !m.fuseUnknown {
		buf.ids = append(buf.ids, uint32(m.unknown))
	}
	return 1, ok
}

func (m *bpe) flushUnknown(buf *symbolBuf, unknown int) int {
	if unknown > 0 {
		buf.ids = append(buf.ids, uint32(m.unknown))
	}
	return 0
}

// value returns *p, or the zero value for a missing field.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// runeTable maps characters to ids by pages of 256.
type runeTable struct {
	pages [(unicode.MaxRune + 1) >> 8]*[256]uint32 // id + 1; 0 = none
}

func (t *runeTable) set(r rune, id uint32) {
	page := t.pages[r>>8]
	if page == nil {
		page = new([256]uint32)
		t.pages[r>>8] = page
	}
	page[r&0xFF] = id + 1
}

func (t *runeTable) get(r rune) (uint32, bool) {
	page := t.pages[r>>8]
	if page == nil || page[r&0xFF] == 0 {
		return 0, false
	}
	return page[r&0xFF] - 1, true
}
