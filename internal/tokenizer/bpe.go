package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"
)

// bpe is byte-pair encoding in its two usual forms: over characters, with unknown tokens
// and byte fallback (SentencePiece), and over raw bytes, where a ByteLevel pre-tokenizer
// would spell each byte as a character.
type bpe struct {
	ids          map[string]uint32
	merges       *pairTable
	prefix       string // of every symbol but a word's first
	suffix       string // of a word's last symbol
	unknown      int64  // id, or -1
	fuseUnknown  bool
	byteFallback bool
	bytes        [256]int64 // ids of <0x00>…<0xFF>, or -1
	ignoreMerges bool       // a piece that is a token is taken as is

	// whole holds the tokens that merging produces from their own text, so that
	// a word that is a token is found by one lookup. Over bytes the keys are raw.
	whole map[string]uint32

	// Over characters.
	runes     runeTable  // ids of one-character tokens
	bridges   *pairTable // pairs of characters that some merge joins
	separable bool       // words may be cut where no merge can join

	// Over bytes.
	overBytes bool
	byteIDs   [256]uint32

	everyByte bool // of a text is in some token
	longest   int  // bytes of the longest token, at least
	spelled   bool // some merge joins tokens that stand for a byte, such as <0x0A>
	// trie returns one with the keys of whole. It is made for the first long word.
	trie func() *byteTrie
}

type bpeJSON struct {
	Vocab        json.RawMessage `json:"vocab"`
	Merges       json.RawMessage `json:"merges"`
	UnkToken     *string         `json:"unk_token"`
	Prefix       *string         `json:"continuing_subword_prefix"`
	Suffix       *string         `json:"end_of_word_suffix"`
	FuseUnk      *bool           `json:"fuse_unk"`
	ByteFallback *bool           `json:"byte_fallback"`
	IgnoreMerges *bool           `json:"ignore_merges"`
}

func parseBPE(raw json.RawMessage, lim limits) (*modelBuild, error) {
	var j bpeJSON
	if err := unmarshal(raw, &j); err != nil {
		return nil, err
	}
	entries, err := parseVocab(j.Vocab, lim)
	if err != nil {
		return nil, err
	}
	merges, err := parseMerges(j.Merges, lim)
	if err != nil {
		return nil, err
	}
	build := &modelBuild{entries: entries, unique: true}
	build.finish = func(byteLevel bool) (model, bool, error) {
		m, err := newBPE(j, entries, merges)
		if err != nil {
			return nil, false, err
		}
		m.useBytes(byteLevel)
		if name := value(j.UnkToken); name != "" && m.unknown < 0 && !m.overBytes { // over bytes nothing is unknown
			return nil, false, fmt.Errorf("%w: unk_token %q is not in the vocabulary", ErrVocabulary, name)
		}
		m.findWhole(entries)
		m.measure(entries)
		m.trie = sync.OnceValue(m.keys)
		if m.overBytes { // these serve characters only
			m.ids, m.bridges = nil, nil
		}
		return m, m.overBytes, nil
	}
	return build, nil
}

func newBPE(j bpeJSON, entries []vocabEntry, merges [][2]string) (*bpe, error) {
	m := &bpe{
		ids:          make(map[string]uint32, len(entries)),
		prefix:       value(j.Prefix),
		suffix:       value(j.Suffix),
		fuseUnknown:  value(j.FuseUnk),
		byteFallback: value(j.ByteFallback),
		ignoreMerges: value(j.IgnoreMerges),
		unknown:      -1,
	}
	for _, e := range entries {
		m.ids[e.token] = e.id
		if r, n := utf8.DecodeRuneInString(e.token); n > 0 && n == len(e.token) {
			m.runes.set(r, e.id)
		}
	}
	for b := range m.bytes {
		m.bytes[b] = -1
		if id, ok := m.ids[fmt.Sprintf("<0x%02X>", b)]; ok {
			m.bytes[b] = int64(id)
		}
	}
	if id, ok := m.ids[value(j.UnkToken)]; ok && value(j.UnkToken) != "" {
		m.unknown = int64(id)
	}
	m.separable = m.prefix == "" && m.suffix == ""
	m.merges, m.bridges = newPairTable(len(merges)), newPairTable(len(merges))
	for rank, pair := range merges {
		if err := m.addMerge(rank, pair[0], pair[1]); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *bpe) addMerge(rank int, left, right string) error {
	a, ok := m.ids[left]
	if !ok {
		return fmt.Errorf("%w: merge %d names unknown token %q", ErrVocabulary, rank, left)
	}
	b, ok := m.ids[right]
	if !ok {
		return fmt.Errorf("%w: merge %d names unknown token %q", ErrVocabulary, rank, right)
	}
	if left == "" || right == "" || len(right) < len(m.prefix) {
		return fmt.Errorf("%w: merge %d joins %q and %q", ErrVocabulary, rank, left, right)
	}
	joined, ok := m.ids[left+right[len(m.prefix):]]
	if !ok {
		return fmt.Errorf("%w: merge %d makes unknown token %q", ErrVocabulary, rank, left+right[len(m.prefix):])
	}
	m.spelled = m.spelled || isByteToken(left) || isByteToken(right)
	m.merges.set(a, b, uint64(rank)<<32|uint64(joined)) // of equal merges the last one counts
	last, _ := utf8.DecodeLastRuneInString(left)
	first, _ := utf8.DecodeRuneInString(right)
	m.bridges.set(uint32(last), uint32(first), 1)
	return nil
}

// useBytes switches to raw bytes if the pieces come from a ByteLevel
// pre-tokenizer and every byte is a token.
func (m *bpe) useBytes(byteLevel bool) {
	if !byteLevel || !m.separable {
		return
	}
	for b, r := range byteAlphabet {
		id, ok := m.runes.get(r)
		if !ok {
			return
		}
		m.byteIDs[b] = id
	}
	m.overBytes = true
}

// findWhole fills whole. With ignoreMerges over bytes every token belongs to it.
func (m *bpe) findWhole(entries []vocabEntry) {
	m.whole = make(map[string]uint32, len(entries))
	if !m.separable {
		return
	}
	var buf symbolBuf
	var ids []uint32
	for _, e := range entries {
		text := e.token
		if m.overBytes {
			var ok bool
			if text, ok = fromAlphabet(text); !ok {
				continue
			}
		}
		if text == "" {
			continue
		}
		if m.overBytes && m.ignoreMerges {
			m.whole[text] = e.id
			continue
		}
		buf.reset()
		if m.overBytes {
			m.byteSymbols(&buf, text)
		} else {
			m.runeSymbols(&buf, text)
		}
		if ids = buf.merge(m.merges, ids[:0]); len(ids) == 1 && ids[0] == e.id {
			m.whole[text] = e.id
		}
	}
}

// measure finds how much of a text a token can stand for.
func (m *bpe) measure(entries []vocabEntry) {
	m.everyByte = m.overBytes
	if !m.overBytes && m.separable && m.byteFallback {
		m.everyByte = true
		for _, id := range m.bytes {
			m.everyByte = m.everyByte && id >= 0
		}
	}
	for _, e := range entries {
		n := len(e.token)
		if raw, ok := fromAlphabet(e.token); m.overBytes && ok {
			n = len(raw)
		}
		m.longest = max(m.longest, n)
	}
}

// isByteToken reports whether a token has the form of those that stand for a byte.
func isByteToken(token string) bool {
	return len(token) == len("<0x00>") && strings.HasPrefix(token, "<0x") && token[5] == '>'
}

// longestAt returns how many bytes of s from i a token of this model can stand for.
func (m *bpe) longestAt(s string, i int) (bytes int, free bool) {
	if m.spelled {
		return m.longest, false
	}
	n, _ := m.trie().longest(s[i:])
	return max(n, 1), false
}

// keys returns a trie of all that merging can make one token of: no merge crosses the ends of
// a token, so what is one token within a text is one by itself.
func (m *bpe) keys() *byteTrie {
	t := newByteTrie()
	for text, id := range m.whole {
		t.insert(text, int32(id))
	}
	return t
}

func (m *bpe) encode(e *encoder, s string) {
	switch {
	case m.overBytes:
		if id, ok := m.whole[s]; ok {
			e.ids = append(e.ids, id)
			return
		}
		if e.tooLong(s, m.longest, m.longestAt) {
			return
		}
		e.symbols.reset()
		m.byteSymbols(&e.symbols, s)
		e.ids = e.symbols.merge(m.merges, e.ids)
	case m.ignoreMerges && m.isToken(s):
		e.ids = append(e.ids, m.ids[s])
	case m.separable:
		m.encodeRunes(e, s)
	default:
		e.symbols.reset()
		if !m.affixSymbols(&e.symbols, s) {
			e.fail(ErrUnknownText)
		}
		e.ids = e.symbols.merge(m.merges, e.ids)
	}
}

func (m *bpe) isToken(s string) bool {
	_, ok := m.ids[s]
	return ok
}

// encodeRunes cuts s between known characters that no merge joins: symbols on
// the two sides can never meet, so each part merges by itself. A long text
// without a pre-tokenizer thus becomes words again.
func (m *bpe) encodeRunes(e *encoder, s string) {
	start := 0
	previous, previousKnown := rune(0), false
	for i, r := range s {
		_, known := m.runes.get(r)
		if known && previousKnown && m.bridges.get(uint32(previous), uint32(r)) == noPair {
			e.breathe()
			if m.encodeWord(e, s[start:i]); e.full() {
				return
			}
			start = i
		}
		previous, previousKnown = r, known
	}
	m.encodeWord(e, s[start:])
}

func (m *bpe) encodeWord(e *encoder, s string) {
	if id, ok := m.whole[s]; ok {
		e.ids = append(e.ids, id)
		return
	}
	if m.everyByte && e.tooLong(s, m.longest, m.longestAt) {
		return
	}
	e.symbols.reset()
	if !m.runeSymbols(&e.symbols, s) {
		e.fail(ErrUnknownText)
	}
	e.ids = e.symbols.merge(m.merges, e.ids)
}
