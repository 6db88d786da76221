package frontend

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/chat"
	"github.com/dynctl/dynctl/internal/protocol"
)

// samplerParams holds the fields that change logits before a token is drawn.
type samplerParams struct {
	presence, frequency, repetition *float64
	bias                            []protocol.TokenBias // ordered by token
	allowed                         []uint32
	words                           []string   // bad_words
	badWords                        [][]uint32 // bad_words_token_ids, and after bind the words too
}

const (
	maxBias     = 1024 // entries of logit_bias
	maxBadWords = 1024 // words, and sequences of ids
	maxBadWord  = 1024 // bytes of a word, and ids of a sequence
)

func (s *samplerParams) addFields(f fields) {
	f["presence_penalty"] = number(&s.presence, -2, 2)
	f["frequency_penalty"] = number(&s.frequency, -2, 2)
	f["repetition_penalty"] = positive(&s.repetition, 2)
	f["logit_bias"] = biases(&s.bias)
	f["allowed_token_ids"] = filled(tokenIDs(&s.allowed, maxTokenIDs), func() int { return len(s.allowed) })
	f["bad_words"] = words(&s.words)
	f["bad_words_token_ids"] = idSequences(&s.badWords)
}

// positive reads a number above 0, up to hi.
func positive(v **float64, hi float64) field {
	read := number(v, 0, hi)
	return func(name string, raw json.RawMessage) *apiError {
		if err := read(name, raw); err != nil {
			return err
		}
		if **v == 0 {
			return wrongValue(name, "it must be greater than 0")
		}
		return nil
	}
}

// filled wraps a list field that must not be empty.
func filled(f field, size func() int) field {
	return func(name string, raw json.RawMessage) *apiError {
		if err := f(name, raw); err != nil {
			return err
		}
		if size() == 0 {
			return wrongValue(name, "the list is empty")
		}
		return nil
	}
}

// biases reads an object from token ids, written as strings, to numbers.
func biases(v *[]protocol.TokenBias) field {
	return func(name string, raw json.RawMessage) *apiError {
		byToken := map[uint32]float32{}
		err := object(func(path, key string, raw json.RawMessage) *apiError {
			id, err := strconv.ParseUint(key, 10, 32)
			if err != nil {
				return wrongValue(path, "'%s' is not a token id", key)
			}
			var bias *float64
			if err := number(&bias, -100, 100)(path, raw); err != nil {
				return err
			}
			byToken[uint32(id)] = float32(*bias) // "7" and "07" are the same token
			return nil
		})(name, raw)
		switch {
		case err != nil:
			return err
		case len(byToken) > maxBias:
			return wrongValue(name, "%d tokens, at most %d are allowed", len(byToken), maxBias)
		}
		*v = nil
		for id, bias := range byToken {
			*v = append(*v, protocol.TokenBias{Token: id, Bias: bias})
		}
		slices.SortFunc(*v, func(a, b protocol.TokenBias) int { return int(int64(a.Token) - int64(b.Token)) })
		return nil
	}
}

// words reads a list of strings that are not blank.
func words(v *[]string) field {
	return func(name string, raw json.RawMessage) *apiError {
		switch err := unmarshalList(raw, v, maxBadWords); {
		case errors.Is(err, errTooMany):
			return wrongValue(name, "at most %d strings are allowed", maxBadWords)
		case err != nil:
			return wrongType(name, "a list of strings")
		}
		if slices.ContainsFunc(*v, func(w string) bool { return len(w) > maxBadWord }) {
			return wrongValue(name, "a string of more than %d bytes", maxBadWord)
		}
		if slices.ContainsFunc(*v, func(w string) bool { return strings.TrimSpace(w) == "" }) {
			return wrongValue(name, "an empty string is not a word")
		}
		return nil
	}
}

// idSequences reads a list of lists of token ids. It also accepts a list of ids and makes
// each a sequence of its own.
func idSequences(v *[][]uint32) field {
	return func(name string, raw json.RawMessage) *apiError {
		list, err := rawList(raw, maxBadWords)
		switch {
		case errors.Is(err, errTooMany):
			return wrongValue(name, "at most %d sequences are allowed", maxBadWords)
		case err != nil:
			return wrongType(name, "a list of token ids or a list of such lists")
		}
		var single []uint32
		if unmarshalIDs(raw, &single, maxBadWords) == nil {
			*v = nil
			for _, id := range single {
				*v = append(*v, []uint32{id})
			}
			return nil
		}
		*v = make([][]uint32, len(list))
		for i, l := range list {
			switch err := unmarshalIDs(l, &(*v)[i], maxBadWord); {
			case errors.Is(err, errTooMany):
				return wrongValue(name, "a list of more than %d token ids", maxBadWord)
			case err != nil:
				return wrongType(name, "a list of token ids or a list of such lists")
			case len((*v)[i]) == 0:
				return wrongValue(name, "one of the lists is empty")
			}
		}
		return nil
	}
}

// bind checks the tokens of the fields and tokenizes the words, as they are at the
// beginning of a text and after a blank.
func (s *samplerParams) bind(m *servedModel) *apiError {
	for _, b := range s.bias {
		if err := checkTokens(m, "logit_bias", []uint32{b.Token}); err != nil {
			return err
		}
	}
	if err := checkTokens(m, "allowed_token_ids", s.allowed); err != nil {
		return err
	}
	for _, ids := range s.badWords {
		if err := checkTokens(m, "bad_words_token_ids", ids); err != nil {
			return err
		}
	}
	for _, w := range s.words {
		w = strings.TrimLeft(w, " ")
		for _, spelling := range []string{w, " " + w} {
			ids := m.proc.EncodeText(spelling)
			if len(ids) > 0 && !slices.ContainsFunc(s.badWords, func(o []uint32) bool { return slices.Equal(o, ids) }) {
				s.badWords = append(s.badWords, ids)
			}
		}
	}
	return nil
}

// sampling fills in the model's defaults where the client sets nothing. OpenAI's default
// temperature is 1.
func (p *params) sampling(d chat.GenerationDefaults, choice int) protocol.SamplingOptions {
	o := protocol.SamplingOptions{Temperature: 1, TopP: 1}
	set := func(v *float32, client *float64, model *float64) {
		switch {
		case client != nil:
			*v = float32(*client)
		case model != nil:
			*v = float32(*model)
		}
	}
	set(&o.Temperature, p.temperature, d.Temperature)
	set(&o.TopP, p.topP, d.TopP)
	set(&o.MinP, p.minP, d.MinP)
	set(&o.RepetitionPenalty, p.sampler.repetition, d.RepetitionPenalty)
	set(&o.FrequencyPenalty, p.sampler.frequency, nil)
	set(&o.PresencePenalty, p.sampler.presence, nil)
	o.LogitBias, o.AllowedTokenIDs, o.BadWords = p.sampler.bias, p.sampler.allowed, p.sampler.badWords
	switch {
	case p.topK != nil:
		o.TopK = int(*p.topK)
	case d.TopK != nil:
		o.TopK = *d.TopK
	}
	if d.DoSample != nil && !*d.DoSample && p.temperature == nil {
		o.Temperature = 0
	}
	if p.topP != nil && *p.topP == 0 {
		o.Temperature = 0 // only the best token; for engines top-p 0 means off
	}
	if p.seed != nil {
		// Choices of one request must differ, and differ in the same way each time.
		o.Seed = uint64(*p.seed) + uint64(choice)*0x9e3779b97f4a7c15
	} else {
		o.Seed = rand.Uint64()
	}
	return o
}
