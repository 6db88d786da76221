package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/dynctl/dynctl/internal/jinja"
)

// RenderChat renders a conversation with the model's chat template. messages are the
// client's JSON objects, and tools is the list of tool definitions or empty. kwargs
// become variables of the template and override the special tokens.
//
// The messages reach the template unchanged, except for what stands for nothing (members
// that are null, an empty list of tool calls), and for things on which templates disagree:
//   - content given as a list of text parts becomes one text, the parts joined by
//     line breaks, unless the template shows parts itself; content that is null becomes an
//     empty text if the template would fail or write "None";
//   - the role developer becomes system, unless the template knows it;
//   - the arguments of tool calls, which clients send as text, become objects; no
//     arguments are an empty object.
//
// If that fails, RenderChat tries other forms: arguments left as text, parts joined,
// several system messages merged into one, arguments that are not JSON (of an answer that
// was cut off) as an object that holds their text. If all fail, it returns the first error.
//
// Errors: [ErrNoTemplate]; [ErrMessages]; a *jinja.RaiseError with the template's own
// words if it refuses the conversation; a *jinja.RenderError or jinja.ErrLimit if the
// template fails; the cause of ctx's end.
func (p *Processor) RenderChat(ctx context.Context, messages []json.RawMessage, tools json.RawMessage, kwargs map[string]json.RawMessage, addGenerationPrompt bool) (string, error) {
	return p.Render(ctx, Conversation{Messages: messages, Tools: tools, Kwargs: kwargs, AddGenerationPrompt: addGenerationPrompt, MostTokens: math.MaxInt32})
}

// Conversation holds the arguments of RenderChat.
type Conversation struct {
	Messages            []json.RawMessage
	Tools               json.RawMessage
	Kwargs              map[string]json.RawMessage
	AddGenerationPrompt bool
	// ContinueFinalMessage ends the text where the text of the last message does.
	ContinueFinalMessage bool
	// MostTokens bounds the tokens of the text. Rendering stops once the text has more in
	// any case.
	MostTokens int
}

// MaxValues bounds the values in the messages, tools and arguments of a conversation,
// because each takes some hundred bytes of memory, however short its JSON.
const MaxValues = 1 << 18

// Render does what RenderChat does and enforces the conversation's limit. It returns
// *TooLongError if the text has more tokens.
func (p *Processor) Render(ctx context.Context, q Conversation) (string, error) {
	values := MaxValues
	toolList, err := readTools(q.Tools, &values)
	if err != nil {
		return "", err
	}
	tmpl, err := p.pick(toolList != nil)
	if err != nil {
		return "", err
	}
	conv, err := readMessages(q.Messages, &values)
	if err != nil {
		return "", err
	}
	var last string
	if q.ContinueFinalMessage {
		if last, err = conv.openEnd(); err != nil {
			return "", err
		}
	}
	vars, err := p.variables(toolList, q.Kwargs, q.AddGenerationPrompt, &values)
	if err != nil {
		return "", err
	}
	limits := p.renderLimits(q.MostTokens)
	var first error
	for _, form := range conv.forms(tmpl) {
		list, err := conv.shape(tmpl, form)
		if err == nil {
			vars.Set("messages", list)
			var text string
			if text, err = tmpl.Render(ctx, vars, jinja.Options{Now: p.now, Limits: limits}); err == nil && q.ContinueFinalMessage {
				return cutAtEnd(text, last)
			}
			if err == nil {
				return text, nil
			}
			if errors.Is(err, jinja.ErrOutput) && limits.Output > 0 {
				return "", &TooLongError{AtLeast: p.tok.FewestTokens(limits.Output + 1)}
			}
		}
		if first == nil {
			first = err
		}
		if !retryable(err) {
			break
		}
	}
	return "", first
}

// retryable reports whether another form of the messages may succeed.
func retryable(err error) bool {
	var raised *jinja.RaiseError
	var failed *jinja.RenderError
	return errors.As(err, &raised) || errors.As(err, &failed)
}

// variables returns the template's variables except the messages.
func (p *Processor) variables(tools jinja.Value, kwargs map[string]json.RawMessage, addGenerationPrompt bool, values *int) (*jinja.Dict, error) {
	vars := jinja.NewDict()
	vars.Set("messages", nil)
	vars.Set("tools", tools)
	vars.Set("documents", nil)
	vars.Set("add_generation_prompt", addGenerationPrompt)
	for _, s := range p.special {
		vars.Set(s.name, s.value)
	}
	for name, raw := range kwargs {
		if name == "messages" || name == "tools" {
			return nil, fmt.Errorf("%w: template arguments may not set %s", ErrMessages, name)
		}
		v, err := jinja.FromJSONWithin(raw, values)
		if err != nil {
			return nil, fmt.Errorf("%w: template argument %s: %w", ErrMessages, name, err)
		}
		vars.Set(name, v)
	}
	return vars, nil
}

// readTools returns the tools as a list, or nil if there are none.
func readTools(raw json.RawMessage, values *int) (jinja.Value, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	v, err := jinja.FromJSONWithin(raw, values)
	if err != nil {
		return nil, fmt.Errorf("%w: tools: %w", ErrMessages, err)
	}
	switch v := v.(type) {
	case nil:
		return nil, nil
	case *jinja.List:
		if v.Len() == 0 {
			return nil, nil
		}
		return v, nil
	}
	return nil, fmt.Errorf("%w: tools is not a list", ErrMessages)
}
