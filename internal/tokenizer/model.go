package tokenizer

import (
	"encoding/json"
	"fmt"
)

// modelBuild is a model whose file section has been read but not yet checked
// against the rest of the file.
type modelBuild struct {
	entries []vocabEntry
	unique  bool // no two entries may have the same text
	// finish builds the model. byteLevel reports that its pieces come from a ByteLevel
	// pre-tokenizer. takesBytes reports that the model needs them as raw bytes.
	finish func(byteLevel bool) (m model, takesBytes bool, err error)
}

func parseModel(raw json.RawMessage, lim limits) (*modelBuild, error) {
	if absent(raw) {
		return nil, fmt.Errorf("%w: missing", ErrMalformed)
	}
	var head struct {
		Type     *string
		Vocab    json.RawMessage
		Merges   json.RawMessage
		MaxChars *int `json:"max_input_chars_per_word"`
	}
	if err := unmarshal(raw, &head); err != nil {
		return nil, err
	}
	var typ string
	switch { // files from before the type was written
	case head.Type != nil:
		typ = *head.Type
	case head.Merges != nil:
		typ = "BPE"
	case len(head.Vocab) > 0 && head.Vocab[0] == '[':
		typ = "Unigram"
	case head.MaxChars != nil:
		typ = "WordPiece"
	default:
		typ = "WordLevel"
	}
	switch typ {
	case "BPE":
		return parseBPE(raw, lim)
	case "Unigram":
		return parseUnigram(raw, lim)
	case "WordPiece":
		return parseWordPiece(raw, lim)
	case "WordLevel":
		return parseWordLevel(raw, lim)
	}
	return nil, fmt.Errorf("%w: model type %q", ErrUnknownComponent, typ)
}

// wordPiece takes the longest known beginning of a word, then of the rest; a
// word that cannot be consumed whole is unknown.
type wordPiece struct {
	heads, tails *byteTrie // tokens by text; tails without their prefix
	unknown      uint32
	maxChars     int
}

func parseWordPiece(raw json.RawMessage, lim limits) (*modelBuild, error) {
	j := struct {
		Vocab    json.RawMessage
		UnkToken string `json:"unk_token"`
		Prefix   string `json:"continuing_subword_prefix"`
		MaxChars int    `json:"max_input_chars_per_word"`
	}{UnkToken: "[UNK]", Prefix: "##", MaxChars: 100}
	if err := unmarshal(raw, &j); err != nil {
		return nil, err
	}
	if j.MaxChars < 0 {
		return nil, fmt.Errorf("%w: max_input_chars_per_word %d", ErrMalformed, j.MaxChars)
	}
	entries, err := parseVocab(j.Vocab, lim)
	if err != nil {
		return nil, err
	}
	w := &wordPiece{heads: newByteTrie(), tails: newByteTrie(), maxChars: j.MaxChars}
	found := false
	for _, e := range entries {
		if len(e.token) > lim.wordPiece {
			return nil, fmt.Errorf("%w: token %d has %d bytes, limit %d", ErrTooLarge, e.id, len(e.token), lim.wordPiece)
		}
		w.heads.insert(e.token, int32(e.id))
		if n := len(j.Prefix); len(e.token) > n && e.token[:n] == j.Prefix {
			w.tails.insert(e.token[n:], int32(e.id))
		}
		if e.token == j.UnkToken {
			w.unknown, found = e.id, true
		}
	}
	if !found {
		return nil, fmt.Errorf("%w: unk_token %q is not in the vocabulary", ErrVocabulary, j.UnkToken)
	}
	finish := func(bool) (model, bool, error) { return w, false, nil }
	return &modelBuild{entries, true, finish}, nil
}

func (w *wordPiece) encode(e *encoder, s string) {
	start := len(e.ids)
	known := runeCount(s, w.maxChars+1) <= w.maxChars
	for trie := w.heads; known && s != ""; trie = w.tails {
		n, id := trie.longest(s)
		known = n > 0
		e.ids = append(e.ids, uint32(id))
		s = s[n:]
	}
	if !known {
		e.ids = append(e.ids[:start], w.unknown)
	}
}

// wordLevel knows whole words only.
type wordLevel struct {
	ids     map[string]uint32
	unknown uint32
}

func parseWordLevel(raw json.RawMessage, lim limits) (*modelBuild, error) {
	j := struct {
		Vocab    json.RawMessage
		UnkToken string `json:"unk_token"`
	}{UnkToken: "<unk>"}
	if err := unmarshal(raw, &j); err != nil {
		return nil, err
	}
	entries, err := parseVocab(j.Vocab, lim)
	if err != nil {
		return nil, err
	}
	w := &wordLevel{ids: make(map[string]uint32, len(entries))}
	for _, e := range entries {
		w.ids[e.token] = e.id
	}
	id, ok := w.ids[j.UnkToken]
	if !ok {
		return nil, fmt.Errorf("%w: unk_token %q is not in the vocabulary", ErrVocabulary, j.UnkToken)
	}
	w.unknown = id
	finish := func(bool) (model, bool, error) { return w, false, nil }
	return &modelBuild{entries, true, finish}, nil
}

func (w *wordLevel) encode(e *encoder, s string) {
	id, ok := w.ids[s]
	if !ok {
		id = w.unknown
	}
	e.ids = append(e.ids, id)
}
