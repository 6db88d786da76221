package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
)

// limits bounds the sizes in a file, so that a hostile one cannot take excessive memory
// or time.
type limits struct {
	file       int // bytes
	tokens     int // entries of the vocabulary
	addedToken int // bytes of one added token
	wordPiece  int // bytes of one token of a model that searches by prefix
	sparseIDs  int // ids allowed in any case, whatever the number of tokens
	depth      int // nested Sequence components
}

// defaultLimits are several times the needs of the largest known tokenizers: 33 MB and
// 262,145 tokens (Gemma 3).
var defaultLimits = limits{
	file:       256 << 20,
	tokens:     4 << 20,
	addedToken: 1 << 10,
	wordPiece:  1 << 10,
	sparseIDs:  1 << 20,
	depth:      16,
}

// vocabulary is the two-way mapping between ids and tokens, the model's and the
// added ones together.
type vocabulary struct {
	tokens  []string // by id; "" where there is none
	ids     map[string]uint32
	special []bool // by id
	added   map[uint32]*AddedToken
}

func (v *vocabulary) token(id uint32) (string, bool) {
	if int64(id) >= int64(len(v.tokens)) {
		return "", false
	}
	if s := v.tokens[id]; s != "" {
		return s, true
	}
	empty, ok := v.ids[""]
	return "", ok && empty == id
}

// vocabEntry is one token of the file, in the file's order.
type vocabEntry struct {
	token string
	id    uint32
}

// newVocabulary joins the model's tokens with the added ones.
func newVocabulary(entries []vocabEntry, unique bool, added []AddedToken, lim limits) (vocabulary, error) {
	var v vocabulary
	if n := len(entries) + len(added); n > lim.tokens {
		return v, fmt.Errorf("%w: %d tokens, limit %d", ErrTooLarge, n, lim.tokens)
	}
	size := 0
	bound := max(lim.sparseIDs, 4*(len(entries)+len(added)))
	grow := func(id uint32, token string) error {
		if int64(id) >= int64(bound) {
			return fmt.Errorf("%w: id %d of %q is past the vocabulary (%d tokens)", ErrVocabulary, id, token, len(entries))
		}
		size = max(size, int(id)+1)
		return nil
	}
	for _, e := range entries {
		if err := grow(e.id, e.token); err != nil {
			return v, err
		}
	}
	for _, a := range added {
		if err := grow(a.ID, a.Content); err != nil {
			return v, err
		}
	}

	v.tokens = make([]string, size)
	v.special = make([]bool, size)
	v.ids = make(map[string]uint32, len(entries)+len(added))
	v.added = make(map[uint32]*AddedToken, len(added))
	taken := make([]bool, size)
	for _, e := range entries {
		if taken[e.id] {
			return v, fmt.Errorf("%w: id %d belongs to %q and %q", ErrVocabulary, e.id, v.tokens[e.id], e.token)
		}
		if old, ok := v.ids[e.token]; ok && unique {
			return v, fmt.Errorf("%w: token %q has ids %d and %d", ErrVocabulary, e.token, old, e.id)
		}
		taken[e.id] = true
		v.tokens[e.id] = e.token
		v.ids[e.token] = e.id
	}
	for i := range added {
		a := &added[i]
		if taken[a.ID] && v.tokens[a.ID] != a.Content {
			return v, fmt.Errorf("%w: id %d belongs to %q and to added token %q", ErrVocabulary, a.ID, v.tokens[a.ID], a.Content)
		}
		if old, ok := v.ids[a.Content]; ok && old != a.ID && v.tokens[a.ID] != a.Content {
			return v, fmt.Errorf("%w: added token %q has id %d, the vocabulary gives it %d", ErrVocabulary, a.Content, a.ID, old)
		}
		if prior := v.added[a.ID]; prior != nil {
			if *prior != *a {
				return v, fmt.Errorf("%w: added token %q is listed twice with different settings", ErrVocabulary, a.Content)
			}
			continue
		}
		taken[a.ID] = true
		v.tokens[a.ID] = a.Content
		if _, ok := v.ids[a.Content]; !ok {
			v.ids[a.Content] = a.ID
		}
		v.added[a.ID] = a
		v.special[a.ID] = a.Special
	}
	// Special is a property of the content: a second id with the same text,
	// possible in Unigram lists, is special too.
	if !unique {
		for _, e := range entries {
			if a := v.added[v.ids[e.token]]; a != nil && a.Special {
				v.special[e.id] = true
			}
		}
	}
	return v, nil
}

// parseVocab reads {"token": id, …}. A duplicate key is an error, which the
// standard decoder would not notice.
func parseVocab(raw json.RawMessage, lim limits) ([]vocabEntry, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, fmt.Errorf("%w: vocab is not an object", ErrMalformed)
	}
	var entries []vocabEntry
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("%w: vocab: %w", ErrMalformed, err)
		}
		value, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("%w: vocab: %w", ErrMalformed, err)
		}
		number, ok := value.(json.Number)
		if !ok {
			return nil, fmt.Errorf("%w: vocab: id of %q is not a number", ErrMalformed, key)
		}
		id, err := number.Int64()
		if err != nil || id < 0 || id > math.MaxUint32 {
			return nil, fmt.Errorf("%w: vocab: id %s of %q", ErrMalformed, number, key)
		}
		if len(entries) >= lim.tokens {
			return nil, fmt.Errorf("%w: more than %d tokens", ErrTooLarge, lim.tokens)
		}
		entries = append(entries, vocabEntry{key.(string), uint32(id)})
	}
	return entries, nil
}

var errMergeShape = errors.New(`want "a b" or ["a", "b"]`)

// parseMerges reads the list of merges, each "a b" or ["a", "b"].
func parseMerges(raw json.RawMessage, lim limits) ([][2]string, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return nil, fmt.Errorf("%w: merges is not a list", ErrMalformed)
	}
	var merges [][2]string
	for n := 0; d.More(); n++ {
		pair, skip, err := parseMerge(d)
		if err != nil {
			return nil, fmt.Errorf("%w: merge %d: %w", ErrMalformed, n, err)
		}
		if len(merges) >= lim.tokens {
			return nil, fmt.Errorf("%w: more than %d merges", ErrTooLarge, lim.tokens)
		}
		if !skip {
			merges = append(merges, pair)
		}
	}
	return merges, nil
}

// parseMerge reads one merge; skip marks the version line of old files.
func parseMerge(d *json.Decoder) (pair [2]string, skip bool, err error) {
	t, err := d.Token()
	if err != nil {
		return pair, false, err
	}
	switch t := t.(type) {
	case string:
		a, b, ok := strings.Cut(t, " ")
		if strings.HasPrefix(t, "#version") {
			return pair, true, nil
		}
		if !ok || strings.Contains(b, " ") {
			return pair, false, fmt.Errorf("%q: %w", t, errMergeShape)
		}
		return [2]string{a, b}, false, nil
	case json.Delim:
		if t != '[' {
			break
		}
		n := 0
		for ; d.More(); n++ {
			t, err := d.Token()
			if err != nil {
				return pair, false, err
			}
			s, ok := t.(string)
			if !ok || n > 1 {
				return pair, false, errMergeShape
			}
			pair[n] = s
		}
		if _, err := d.Token(); err != nil {
			return pair, false, err
		}
		if n != 2 {
			return pair, false, errMergeShape
		}
		return pair, false, nil
	}
	return pair, false, errMergeShape
}
