package tokenizer

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/clipperhouse/uax29/v2/graphemes"
)

// precompiled is SentencePiece's character map: a double-array trie over the
// texts to be replaced, whose values are offsets into a table of replacements.
type precompiled struct {
	units []uint32 // the trie
	table []byte   // replacements, each ending in NUL
}

// newPrecompiled reads the map: the trie's size in bytes (4 bytes, little
// endian), the trie, the table.
func newPrecompiled(raw json.RawMessage) (normalizer, error) {
	var j struct {
		Map string `json:"precompiled_charsmap"`
	}
	if err := unmarshal(raw, &j); err != nil {
		return nil, err
	}
	b, err := base64.StdEncoding.DecodeString(j.Map)
	if err != nil {
		return nil, fmt.Errorf("%w: precompiled_charsmap: %w", ErrMalformed, err)
	}
	if len(b) < 4 {
		return nil, fmt.Errorf("%w: precompiled_charsmap of %d bytes", ErrMalformed, len(b))
	}
	size := int64(binary.LittleEndian.Uint32(b))
	if b = b[4:]; size%4 != 0 || size == 0 || size > int64(len(b)) {
		return nil, fmt.Errorf("%w: precompiled_charsmap: trie of %d bytes in %d", ErrMalformed, size, len(b))
	}
	m := &precompiled{units: make([]uint32, size/4), table: b[size:]}
	for i := range m.units {
		m.units[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return m, nil
}

// lookup returns the replacement for the shortest prefix of s that has one.
// That the rest of s is then dropped is how the format is used: s is one
// grapheme or one character.
func (m *precompiled) lookup(s string) (string, bool) {
	node := unitOffset(m.units[0])
	for i := range len(s) {
		if s[i] == 0 {
			return "", false
		}
		node ^= uint32(s[i])
		if int64(node) >= int64(len(m.units)) {
			return "", false
		}
		unit := m.units[node]
		if unit&(1<<31|0xFF) != uint32(s[i]) { // its label
			return "", false
		}
		node ^= unitOffset(unit)
		if int64(node) >= int64(len(m.units)) {
			return "", false
		}
		if unit>>8&1 == 0 { // no value here
			continue
		}
		at := int64(m.units[node] &^ (1 << 31))
		if at > int64(len(m.table)) {
			return "", false
		}
		text := m.table[at:]
		for n, c := range text {
			if c == 0 {
				text = text[:n]
				break
			}
		}
		return toValid(string(text)), true
	}
	return "", false
}

func unitOffset(unit uint32) uint32 { return unit >> 10 << (unit & (1 << 9) >> 6) }

func (m *precompiled) normalize(p piece) (piece, error) {
	var b strings.Builder
	b.Grow(len(p.s))
	for at, g := 0, graphemes.FromString(p.s); g.Next(); at += len(g.Value()) {
		cluster := g.Value()
		// SentencePiece looks a short cluster up as a whole before its characters.
		if len(cluster) < 6 {
			if to, ok := m.lookup(cluster); ok {
				b.WriteString(to)
				p.first = p.first && (at > 0 || to != "")
				continue
			}
		}
		for i := 0; i < len(cluster); {
			n := charLen(cluster[i])
			if to, ok := m.lookup(cluster[i : i+n]); ok {
				b.WriteString(to)
				p.first = p.first && (at+i > 0 || to != "")
			} else {
				b.WriteString(cluster[i : i+n])
			}
			i += n
		}
	}
	p.s = b.String()
	return p, nil
}
