package frontend

import (
	"context"
	"encoding/json"
	"errors"
	"unicode/utf8"
)

// completionRequest is the body of POST /v1/completions.
type completionRequest struct {
	params
	prompt json.RawMessage
	echo   bool
	top    *int64     // logprobs
	tokens [][]uint32 // of the prompts
}

// defaultCompletionTokens is OpenAI's limit when a client sets none.
const defaultCompletionTokens = 16

func (q *completionRequest) fields() fields {
	f := q.sharedFields()
	f["prompt"] = func(_ string, raw json.RawMessage) *apiError {
		q.prompt = raw
		return nil
	}
	f["echo"] = flag(&q.echo)
	f["suffix"] = only(`""`)
	f["logprobs"] = integer(&q.top, 0, maxTextLogprobs)
	f["max_tokens"] = integer(&q.maxTokens, 0, maxCount)
	f["best_of"] = only("1")
	return f
}

func (q *completionRequest) check() *apiError {
	if err := q.params.check(); err != nil {
		return err
	}
	if len(q.prompt) == 0 {
		return missing("prompt")
	}
	if q.maxTokens != nil && *q.maxTokens == 0 && !q.echo {
		return wrongValue("max_tokens", "0 is allowed only with 'echo', otherwise %d to %d", 1, maxCount)
	}
	if q.top != nil {
		n := int(*q.top)
		q.logprobs, q.promptLogprobs = &n, q.echo
	}
	return nil
}

func (*completionRequest) promptField() string { return "prompt" }

func (*completionRequest) defaultTokens() int { return defaultCompletionTokens }

// prompts reads the four forms of a prompt: a text, several texts, token ids, or
// several lists of token ids.
func (q *completionRequest) prompts(ctx context.Context, m *servedModel) ([][]uint32, error) {
	texts, tokens, bad := readPrompt(q.prompt, m.card.ContextLength, q.mostPrompt(m))
	if bad != nil {
		return nil, bad
	}
	count := len(texts) + len(tokens)
	if count == 0 {
		return nil, wrongValue("prompt", "the list is empty")
	}
	if n := count * q.choices(); n > maxChoices {
		return nil, wrongValue("prompt", "%d prompts times n are %d answers, at most %d are allowed", count, n, maxChoices)
	}
	for _, ids := range tokens {
		if err := checkTokens(m, "prompt", ids); err != nil {
			return nil, err
		}
	}
	for _, t := range texts {
		ids, err := m.proc.EncodePromptWithin(t, q.mostPrompt(m))
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return nil, promptError(m, "prompt", err)
		}
		tokens = append(tokens, ids)
	}
	for i, ids := range tokens {
		if tokens[i], bad = q.truncated(m, ids, q.defaultTokens()); bad != nil {
			return nil, bad
		}
	}
	q.tokens = tokens
	return tokens, nil
}

// readPrompt returns the texts or the token ids of a prompt, of which there may be most. context
// is the model's context length, in tokens.
func readPrompt(raw json.RawMessage, context, most int) (texts []string, tokens [][]uint32, _ *apiError) {
	ids := func(raw json.RawMessage) *apiError {
		var list []uint32
		switch err := unmarshalIDs(raw, &list, most); {
		case errors.Is(err, errTooMany):
			return promptTooLong("prompt", context, most+1)
		case err != nil:
			return badPrompt()
		}
		tokens = append(tokens, list)
		return nil
	}
	if cursor(raw).Kind() == '"' {
		var one string
		if json.Unmarshal(raw, &one) != nil {
			return nil, nil, badPrompt()
		}
		return []string{one}, nil, nil
	}
	kind := byte(0) // of the elements, which are all alike
	err := elements(raw, 1, func(_ int, first json.RawMessage) error {
		kind = first[0]
		return nil
	})
	switch {
	case err != nil && !errors.Is(err, errTooMany):
		return nil, nil, badPrompt()
	case kind == 0:
		return nil, nil, nil
	case kind != '"' && kind != '[':
		bad := ids(raw)
		return nil, tokens, bad
	}
	list, err := rawList(raw, maxChoices)
	if errors.Is(err, errTooMany) {
		return nil, nil, wrongValue("prompt", "at most %d prompts are allowed", maxChoices)
	}
	if err != nil {
		return nil, nil, badPrompt()
	}
	for _, one := range list {
		switch {
		case one[0] != kind:
			return nil, nil, badPrompt()
		case kind == '[':
			if bad := ids(one); bad != nil {
				return nil, nil, bad
			}
			continue
		}
		var text string
		if json.Unmarshal(one, &text) != nil {
			return nil, nil, badPrompt()
		}
		texts = append(texts, text)
	}
	return texts, tokens, nil
}

func (q *completionRequest) forget() { q.prompt = nil }

func badPrompt() *apiError {
	return wrongType("prompt", "a string, a list of strings, a list of token ids, or a list of such lists")
}

func (q *completionRequest) answer(m *servedModel, created int64, choices []*choice) answerer {
	id := newID("cmpl-")
	a := &completionAnswer{
		id: id, model: q.model, created: created, echo: make([]string, len(choices)),
		chunks: newChunks(id, "text_completion", q.model, created, q.includeUsage),
		names:  q.tokenNames(m),
	}
	if q.echo {
		echoes := make([]string, len(q.tokens))
		for i, ids := range q.tokens {
			echoes[i] = m.proc.Decode(ids)
		}
		for i, c := range choices {
			a.echo[i] = echoes[c.prompt]
			if c.probs != nil {
				c.probs.chars = utf8.RuneCountInString(a.echo[i])
			}
		}
	}
	return a
}

// completionAnswer writes a text completion, streamed or whole.
type completionAnswer struct {
	id, model string
	created   int64
	echo      []string // text before each choice
	chunks    chunks
	names     tokenNames
}

func (a *completionAnswer) appendDelta(dst []byte, d delta) []byte {
	text := d.text
	if a.echo[d.index] != "" {
		text, a.echo[d.index] = a.echo[d.index]+text, ""
	}
	dst = a.chunks.open(dst, d.index)
	dst = append(dst, `,"text":`...)
	dst = appendString(dst, text)
	dst = append(dst, `,"logprobs":`...)
	dst = a.names.appendText(dst, d.echoed, d.probs)
	return a.chunks.end(dst, d.finish)
}

func (a *completionAnswer) lastEvent(u *usage, e *extension) []byte { return a.chunks.last(u, e) }

func (a *completionAnswer) whole(choices []*choice, u usage, e *extension) any {
	type entry struct {
		Index        int             `json:"index"`
		Text         string          `json:"text"`
		Logprobs     json.RawMessage `json:"logprobs"`
		FinishReason string          `json:"finish_reason"`
	}
	entries := make([]entry, len(choices))
	for i, c := range choices {
		entries[i] = entry{Index: i, Text: a.echo[i] + c.text.String(), FinishReason: c.finish}
		if c.probs != nil {
			entries[i].Logprobs = a.names.appendText(nil, nil, c.probs.kept)
		}
	}
	return answerBody[entry]{a.id, "text_completion", a.created, a.model, nil, entries, u, e}
}
