package tokenizer

import (
	"encoding/json"
	"fmt"
)

type sequence uint8

const (
	noSequence sequence = iota
	sequenceA
	sequenceB
)

// templatePart is one item of a template: a text's ids, or fixed special ids.
type templatePart struct {
	sequence sequence
	ids      []uint32
}

// postProcessor holds the special tokens around the ids of one text, and of a pair.
type postProcessor struct {
	single, pair []templatePart
	adds         bool // it adds tokens to the texts
}

func plainPostProcessor() postProcessor {
	return postProcessor{
		single: []templatePart{{sequence: sequenceA}},
		pair:   []templatePart{{sequence: sequenceA}, {sequence: sequenceB}},
	}
}

func newPostProcessor(raw json.RawMessage, v *vocabulary) (postProcessor, error) {
	return parsePostProcessor(raw, v, 0)
}

func parsePostProcessor(raw json.RawMessage, v *vocabulary, depth int) (postProcessor, error) {
	plain := plainPostProcessor()
	typ, err := componentType(raw, depth)
	if err != nil {
		return plain, err
	}
	switch typ {
	case "", "ByteLevel": // ByteLevel trims offsets only
		return plain, nil
	case "Sequence":
		return parseProcessorSequence(raw, v, depth)
	case "TemplateProcessing":
		return parseTemplate(raw, v)
	case "BertProcessing", "RobertaProcessing":
		var j struct{ Sep, Cls specialPair }
		if err := unmarshal(raw, &j); err != nil {
			return plain, err
		}
		for _, p := range []specialPair{j.Sep, j.Cls} {
			if err := checkTokens(v, p.token, []uint32{p.id}); err != nil {
				return plain, err
			}
		}
		cls, sep := templatePart{ids: []uint32{j.Cls.id}}, templatePart{ids: []uint32{j.Sep.id}}
		a, b := templatePart{sequence: sequenceA}, templatePart{sequence: sequenceB}
		p := postProcessor{single: []templatePart{cls, a, sep}, pair: []templatePart{cls, a, sep, b, sep}, adds: true}
		if typ == "RobertaProcessing" {
			p.pair = []templatePart{cls, a, sep, sep, b, sep}
		}
		return p, nil
	}
	return plain, fmt.Errorf("%w: post-processor type %q", ErrUnknownComponent, typ)
}

// parseProcessorSequence allows one processor that adds tokens: what a second
// one would see as its texts is not defined.
func parseProcessorSequence(raw json.RawMessage, v *vocabulary, depth int) (postProcessor, error) {
	out := plainPostProcessor()
	var j struct{ Processors []json.RawMessage }
	if err := unmarshal(raw, &j); err != nil {
		return out, err
	}
	for i, r := range j.Processors {
		p, err := parsePostProcessor(r, v, depth+1)
		if err != nil {
			return out, fmt.Errorf("item %d: %w", i, err)
		}
		if p.adds {
			if out.adds {
				return out, fmt.Errorf("%w: more than one post-processor that adds tokens", ErrUnknownComponent)
			}
			out = p
		}
	}
	return out, nil
}

// specialPair is written as ["[SEP]", 102].
type specialPair struct {
	token string
	id    uint32
}

func (p *specialPair) UnmarshalJSON(b []byte) error {
	row := []any{&p.token, &p.id}
	if err := json.Unmarshal(b, &row); err != nil {
		return err
	}
	if len(row) != 2 || row[0] == nil || row[1] == nil {
		return fmt.Errorf("%s is not [token, id]", b)
	}
	return nil
}

type templateJSON []struct {
	SpecialToken *struct{ ID string }
	Sequence     *struct{ ID string }
}

func parseTemplate(raw json.RawMessage, v *vocabulary) (postProcessor, error) {
	var p postProcessor
	var j struct {
		Single, Pair templateJSON
		Special      map[string]struct{ IDs []uint32 } `json:"special_tokens"`
	}
	if err := unmarshal(raw, &j); err != nil {
		return p, err
	}
	for name, s := range j.Special {
		if err := checkTokens(v, name, s.IDs); err != nil {
			return p, err
		}
	}
	compile := func(name string, list templateJSON, wantB bool) ([]templatePart, error) {
		var parts []templatePart
		count := map[string]int{}
		for i, item := range list {
			switch {
			case item.SpecialToken != nil && item.Sequence == nil:
				s, ok := j.Special[item.SpecialToken.ID]
				if !ok {
					return nil, fmt.Errorf("%w: template %s names undefined special token %q", ErrVocabulary, name, item.SpecialToken.ID)
				}
				parts = append(parts, templatePart{ids: s.IDs})
			case item.Sequence != nil && item.SpecialToken == nil:
				part := templatePart{sequence: sequenceA}
				if item.Sequence.ID == "B" {
					part.sequence = sequenceB
				}
				count[item.Sequence.ID]++
				parts = append(parts, part)
			default:
				return nil, fmt.Errorf("%w: template %s, item %d", ErrMalformed, name, i)
			}
		}
		ok := len(count) == 1 && count["A"] == 1
		if wantB {
			ok = len(count) == 2 && count["A"] == 1 && count["B"] == 1
		}
		if !ok {
			return nil, fmt.Errorf("%w: template %s must use each of its texts once", ErrMalformed, name)
		}
		return parts, nil
	}
	var err error
	if p.single, err = compile("single", j.Single, false); err != nil {
		return p, err
	}
	if p.pair = plainPostProcessor().pair; len(j.Pair) > 0 {
		if p.pair, err = compile("pair", j.Pair, true); err != nil {
			return p, err
		}
	}
	p.adds = true
	return p, nil
}

// checkTokens refuses ids that stand for no token.
func checkTokens(v *vocabulary, name string, ids []uint32) error {
	for _, id := range ids {
		if _, ok := v.token(id); !ok {
			return fmt.Errorf("%w: special token %q has id %d, past the vocabulary or unassigned", ErrVocabulary, name, id)
		}
	}
	return nil
}
