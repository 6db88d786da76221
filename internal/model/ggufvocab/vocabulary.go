package ggufvocab

import (
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/dynctl/dynctl/internal/model/gguf"
)

var (
	// ErrVocabulary is returned when the vocabulary keys are missing or contradict
	// each other.
	ErrVocabulary = errors.New("invalid GGUF vocabulary")
	// ErrUnknown is returned for a kind of tokenizer that is not known.
	ErrUnknown = errors.New("unknown GGUF tokenizer")
)

// Vocabulary holds the tokenizer files made from a GGUF file's keys.
type Vocabulary struct {
	Tokenizer       []byte // tokenizer.json
	TokenizerConfig []byte // tokenizer_config.json
	// EOS lists the ids that end a text, in ascending order: those that the keys
	// name, and the ends of turns by their usual spelling.
	EOS []uint32
	// Added are the ids of the tokens that are found in a text as a whole; of equal ones
	// the first.
	Added map[string]uint32
}

// kind is the type of a token, with the number that files use.
type kind int

const (
	normal      kind = 1
	unknown     kind = 2
	control     kind = 3 // special: never part of ordinary text
	userDefined kind = 4 // found as a whole, but not special
	unused      kind = 5
	byteToken   kind = 6 // <0x00> to <0xFF>
)

// words are the keys, checked but not yet turned into files.
type words struct {
	tokens []string
	kinds  []kind
	scores []float32  // of SentencePiece
	merges [][]string // of byte-level BPE, pairs
	roles  map[string]uint32
	bos    bool // a first token is added to a plain text
	eos    bool // and a last one
	prefix bool // SentencePiece: a space before the text
}

const keyPrefix = "tokenizer.ggml."

// Read makes the files. context is the number of positions of the model. Errors
// match [ErrVocabulary], [ErrUnknown] or [gguf.ErrKey] and name the key.
func Read(keys gguf.Keys, context int) (Vocabulary, error) {
	v, err := read(keys, context)
	if err != nil {
		return Vocabulary{}, fmt.Errorf("read vocabulary: %w", err)
	}
	return v, nil
}

func read(keys gguf.Keys, context int) (v Vocabulary, err error) {
	name, ok, err := keys.Text(keyPrefix + "model")
	if err != nil {
		return v, err
	}
	if !ok {
		return v, badf("%smodel is missing: the file has no tokenizer", keyPrefix)
	}
	w, err := readWords(keys)
	if err != nil {
		return v, err
	}
	var file tokenizerFile
	switch name {
	case "gpt2":
		file, err = w.byteLevel(keys)
	case "llama":
		file, err = w.sentencePiece(keys)
	default:
		return v, fmt.Errorf("%w: %smodel %q; known are gpt2, llama", ErrUnknown, keyPrefix, name)
	}
	if err != nil {
		return v, err
	}
	file.Added = w.added()
	if file.PostProcessor, err = w.postProcessor(); err != nil {
		return v, err
	}
	if v.Tokenizer, err = encode(file); err != nil {
		return v, err
	}
	if v.TokenizerConfig, err = w.config(keys, context); err != nil {
		return v, err
	}
	v.EOS, v.Added = w.ends(), map[string]uint32{}
	for _, t := range slices.Backward(file.Added) {
		v.Added[t.Content] = uint32(t.ID)
	}
	return v, nil
}

// readWords reads the tokens, what they are, and their roles.
func readWords(keys gguf.Keys) (*words, error) {
	w := &words{roles: map[string]uint32{}}
	var ok bool
	var err error
	if w.tokens, ok, err = keys.Texts(keyPrefix + "tokens"); err != nil {
		return nil, err
	}
	if !ok || len(w.tokens) == 0 {
		return nil, badf("%stokens is missing or empty", keyPrefix)
	}
	for id, text := range w.tokens {
		if !utf8.ValidString(text) {
			return nil, badf("%stokens: token %d is not UTF-8: %q", keyPrefix, id, text)
		}
	}
	if err := w.readKinds(keys); err != nil {
		return nil, err
	}
	if w.scores, ok, err = keys.Floats(keyPrefix + "scores"); err != nil {
		return nil, err
	}
	if ok && len(w.scores) != len(w.tokens) {
		return nil, badf("%sscores has %d entries for %d tokens", keyPrefix, len(w.scores), len(w.tokens))
	}
	return w, w.readRoles(keys)
}

func (w *words) readKinds(keys gguf.Keys) error {
	name := keyPrefix + "token_type"
	list, ok, err := keys.Ints(name)
	if err != nil {
		return err
	}
	if ok && len(list) != len(w.tokens) {
		return badf("%s has %d entries for %d tokens", name, len(list), len(w.tokens))
	}
	w.kinds = make([]kind, len(w.tokens))
	for id := range w.kinds {
		w.kinds[id] = normal
		if ok {
			w.kinds[id] = kind(list[id])
		}
		if k := w.kinds[id]; k < normal || k > byteToken {
			return badf("%s: token %d has the unknown type %d", name, id, k)
		}
	}
	return nil
}

// roleKeys are the keys that name a token by its id, and what configurations call
// that token.
func roleKeys() map[string]string {
	return map[string]string{
		"bos_token_id": "bos_token", "eos_token_id": "eos_token", "unknown_token_id": "unk_token", "padding_token_id": "pad_token",
		"eot_token_id": "eot_token", "eom_token_id": "eom_token",
	}
}

func (w *words) readRoles(keys gguf.Keys) error {
	for key, role := range roleKeys() {
		id, ok, err := keys.Int(keyPrefix + key)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if id >= len(w.tokens) {
			return badf("%s%s is %d, the vocabulary has %d tokens", keyPrefix, key, id, len(w.tokens))
		}
		w.roles[role] = uint32(id)
		if w.kinds[id] == normal && role != "unk_token" { // files without token types
			w.kinds[id] = control
		}
	}
	return nil
}

// added lists the tokens that are found in the text as a whole.
func (w *words) added() []addedToken {
	list := []addedToken{}
	for id, text := range w.tokens {
		k := w.kinds[id]
		if k == control || k == userDefined || k == unknown {
			list = append(list, addedToken{ID: id, Content: text, Special: k != userDefined})
		}
	}
	return list
}

// vocabulary maps the tokens of some kinds to their ids.
func (w *words) vocabulary(kinds ...kind) (map[string]int, error) {
	ids := make(map[string]int, len(w.tokens))
	for id, text := range w.tokens {
		if !slices.Contains(kinds, w.kinds[id]) {
			continue
		}
		if other, dup := ids[text]; dup {
			return nil, badf("%stokens: %q has the ids %d and %d", keyPrefix, text, other, id)
		}
		ids[text] = id
	}
	return ids, nil
}

// turnEnds are control tokens that end a turn in the templates that use them. Files
// often name only one of the ids that end a text.
func turnEnds() []string {
	return []string{"<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>"}
}

func (w *words) ends() []uint32 {
	var ids []uint32
	for _, role := range []string{"eos_token", "eot_token", "eom_token"} {
		if id, ok := w.roles[role]; ok {
			ids = append(ids, id)
		}
	}
	for id, text := range w.tokens {
		if w.kinds[id] == control && slices.Contains(turnEnds(), text) {
			ids = append(ids, uint32(id))
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// flag reads a key that is true or false.
func flag(keys gguf.Keys, name string, def bool) (bool, error) {
	b, ok, err := keys.Bool(keyPrefix + name)
	if !ok {
		b = def
	}
	return b, err
}

func badf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrVocabulary}, args...)...)
}
