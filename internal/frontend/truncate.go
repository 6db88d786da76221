package frontend

// truncatable bounds a prompt of which only the end is wanted, in multiples of the context: its
// beginning is tokenized for nothing.
const truncatable = 8

// mostPrompt returns how many tokens a prompt may have before it is truncated.
func (p *params) mostPrompt(m *servedModel) int {
	if p.truncate == nil {
		return m.card.ContextLength
	}
	return truncatable * m.card.ContextLength
}

// truncated returns the end of a prompt that truncate_prompt_tokens asks for: so many tokens,
// or for -1 as many as leave room for max_tokens, fallback if the client sets none, and for
// one token at least.
func (p *params) truncated(m *servedModel, prompt []uint32, fallback int) ([]uint32, *apiError) {
	if p.truncate == nil {
		return prompt, nil
	}
	keep, context := *p.truncate, int64(m.card.ContextLength)
	switch {
	case keep > context:
		return nil, wrongValue("truncate_prompt_tokens", "%d is more than this model's maximum context length, %d tokens", keep, context)
	case keep < 0:
		output := int64(fallback)
		if p.maxTokens != nil {
			output = *p.maxTokens
		}
		if keep = context - max(output, 1); keep <= 0 {
			return prompt, nil // budget says why
		}
	}
	if keep >= int64(len(prompt)) {
		return prompt, nil
	}
	return prompt[int64(len(prompt))-keep:], nil
}
