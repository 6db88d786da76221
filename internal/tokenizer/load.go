package tokenizer

import (
	"encoding/json"
	"fmt"
)

// fileJSON is the top level of tokenizer.json. Truncation and padding settings
// are ignored: they belong to training and batching.
type fileJSON struct {
	AddedTokens   []addedJSON     `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         json.RawMessage `json:"model"`
}

type addedJSON struct {
	ID         *uint32 `json:"id"`
	Content    *string `json:"content"`
	SingleWord bool    `json:"single_word"`
	LStrip     bool    `json:"lstrip"`
	RStrip     bool    `json:"rstrip"`
	Normalized *bool   `json:"normalized"` // default: unless special
	Special    bool    `json:"special"`
}

// Load builds a Tokenizer from the contents of a tokenizer.json file. It checks
// everything that encoding relies on. The error wraps one of this package's errors and
// names the fault.
func Load(tokenizerJSON []byte) (*Tokenizer, error) {
	t, err := load(tokenizerJSON, defaultLimits)
	if err != nil {
		return nil, fmt.Errorf("load tokenizer: %w", err)
	}
	return t, nil
}

func load(b []byte, lim limits) (*Tokenizer, error) {
	if len(b) > lim.file {
		return nil, fmt.Errorf("%w: %d bytes, limit %d", ErrTooLarge, len(b), lim.file)
	}
	if err := checkText(b); err != nil {
		return nil, err
	}
	var f fileJSON
	if err := unmarshal(b, &f); err != nil {
		return nil, err
	}
	added, err := parseAdded(f.AddedTokens, lim)
	if err != nil {
		return nil, err
	}

	t := &Tokenizer{}
	build, err := parseModel(f.Model, lim)
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	if t.vocab, err = newVocabulary(build.entries, build.unique, added, lim); err != nil {
		return nil, err
	}
	if t.normalizers, err = newNormalizers(f.Normalizer, 0); err != nil {
		return nil, fmt.Errorf("normalizer: %w", err)
	}
	if t.preTokenizers, err = newPreTokenizers(f.PreTokenizer, 0); err != nil {
		return nil, fmt.Errorf("pre_tokenizer: %w", err)
	}
	if t.post, err = newPostProcessor(f.PostProcessor, &t.vocab); err != nil {
		return nil, fmt.Errorf("post_processor: %w", err)
	}
	if t.decoder, err = newDecoder(f.Decoder, 0); err != nil {
		return nil, fmt.Errorf("decoder: %w", err)
	}
	if len(t.decoder) == 1 {
		_, t.byteDecoder = t.decoder[0].(byteLevelDecoder)
	}
	if t.byteDecoder {
		t.raw = make([]string, len(t.vocab.tokens))
		for id, token := range t.vocab.tokens {
			if raw, ok := fromAlphabet(token); ok {
				token = raw
			}
			t.raw[id] = token
		}
	}
	if err := t.placeAdded(added); err != nil {
		return nil, err
	}

	var last *byteLevelStep
	if n := len(t.preTokenizers); n > 0 {
		last, _ = t.preTokenizers[n-1].(*byteLevelStep)
	}
	var takesBytes bool
	if t.model, takesBytes, err = build.finish(last != nil); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	if takesBytes {
		last.raw = true
		if !last.prefixSpace && !last.useRegex { // nothing left for it to do
			t.preTokenizers = t.preTokenizers[:len(t.preTokenizers)-1]
		}
	}
	t.longest = t.longestToken()
	t.encoders.New = func() any { return &encoder{t: t} }
	return t, nil
}

func parseAdded(list []addedJSON, lim limits) ([]AddedToken, error) {
	if len(list) > lim.tokens {
		return nil, fmt.Errorf("%w: %d added tokens, limit %d", ErrTooLarge, len(list), lim.tokens)
	}
	out := make([]AddedToken, len(list))
	for i, j := range list {
		switch {
		case j.ID == nil || j.Content == nil:
			return nil, fmt.Errorf("%w: added token %d lacks id or content", ErrMalformed, i)
		case *j.Content == "":
			return nil, fmt.Errorf("%w: added token %d (id %d) has empty content", ErrVocabulary, i, *j.ID)
		case len(*j.Content) > lim.addedToken:
			return nil, fmt.Errorf("%w: added token %d has %d bytes, limit %d", ErrTooLarge, i, len(*j.Content), lim.addedToken)
		}
		out[i] = AddedToken{
			ID: *j.ID, Content: *j.Content, SingleWord: j.SingleWord, LStrip: j.LStrip, RStrip: j.RStrip,
			Normalized: !j.Special, Special: j.Special,
		}
		if j.Normalized != nil {
			out[i].Normalized = *j.Normalized
		}
	}
	return out, nil
}

// placeAdded fills the two matchers. Special tokens come first: of two tokens
// that normalize to the same text the earlier one wins.
func (t *Tokenizer) placeAdded(added []AddedToken) error {
	t.rawTokens, t.normTokens = newAddedMatcher(), newAddedMatcher()
	for _, special := range []bool{true, false} {
		for i := range added {
			a := &added[i]
			if a.Special != special {
				continue
			}
			if !a.Normalized {
				t.rawTokens.add(a.Content, a)
				continue
			}
			p := piece{a.Content, true}
			for _, n := range t.normalizers {
				var err error
				if p, err = n.normalize(p); err != nil {
					return fmt.Errorf("normalize added token %q: %w", a.Content, err)
				}
			}
			t.normTokens.add(p.s, a)
		}
	}
	return nil
}
