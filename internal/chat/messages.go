package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/dynctl/dynctl/internal/jinja"
	"github.com/dynctl/dynctl/internal/jsonscan"
)

// conversation is a list of messages, and what in them may have to be reshaped.
type conversation struct {
	messages  []*jinja.Dict
	lists     bool // some content is a list of parts
	arguments bool // some tool call has its arguments as text
	cut       bool // some of these are not JSON, such as those of an answer that was cut off
	systems   int  // messages with the role system or developer
	values    *int // budget of values left for arguments, see MaxValues
}

// form says how messages are presented to a template.
type form struct {
	joinParts     bool // lists of text parts become text
	textArguments bool // arguments of tool calls stay text
	wrapArguments bool // arguments that are not JSON become an object that holds their text
	mergeSystem   bool // all system messages become the first message
}

func readMessages(raw []json.RawMessage, values *int) (*conversation, error) {
	c := &conversation{values: values}
	for i, m := range raw {
		v, err := jinja.FromJSONWithin(m, values)
		if err != nil {
			return nil, fmt.Errorf("%w: message %d: %w", ErrMessages, i, err)
		}
		d, ok := v.(*jinja.Dict)
		if !ok {
			return nil, fmt.Errorf("%w: message %d is not an object", ErrMessages, i)
		}
		role, ok := get(d, "role").(string)
		if !ok {
			return nil, fmt.Errorf("%w: message %d has no role", ErrMessages, i)
		}
		d, err = tidied(d)
		if err != nil {
			return nil, fmt.Errorf("%w: message %d: %w", ErrMessages, i, err)
		}
		if _, ok := get(d, "content").(*jinja.List); ok {
			c.lists = true
		}
		if role == "system" || role == "developer" {
			c.systems++
		}
		c.messages = append(c.messages, d)
		c.look(d)
	}
	return c, nil
}

// look notes what a message's tool calls have as arguments.
func (c *conversation) look(m *jinja.Dict) {
	calls, _ := get(m, "tool_calls").(*jinja.List)
	if calls == nil {
		return
	}
	for i := range calls.Len() {
		call, _ := calls.At(i).(*jinja.Dict)
		if call == nil {
			continue
		}
		function, _ := get(call, "function").(*jinja.Dict)
		if function == nil {
			continue
		}
		if text, _ := get(function, "arguments").(string); strings.TrimSpace(text) != "" {
			c.arguments = true
			c.cut = c.cut || !json.Valid([]byte(text))
		}
	}
}

func get(d *jinja.Dict, key string) jinja.Value {
	v, _ := d.Get(key)
	return v
}

// tidied returns a message without what clients send in place of nothing, as vLLM does:
// templates tell members that are null or empty from ones that are missing. The content may
// be null, and a tool call without arguments has an empty object of them.
func tidied(m *jinja.Dict) (*jinja.Dict, error) {
	out := jinja.NewDict()
	for i := range m.Len() {
		key, v := m.Entry(i)
		list, isList := v.(*jinja.List)
		switch {
		case key == "content" || v == nil || key == "tool_calls" && isList && list.Len() == 0:
			if key == "content" {
				out.Set(key, nil) // in its place
			}
			continue
		case key == "tool_calls" && isList:
			v, _ = withArguments(list, func(given jinja.Value) (jinja.Value, bool, error) { return "{}", given == nil, nil })
		}
		out.Set(key, v)
	}
	content := get(m, "content")
	switch c := content.(type) {
	case nil, string:
	case *jinja.List:
		parts := make([]jinja.Value, c.Len())
		for k := range parts {
			var err error
			if parts[k], err = tidyPart(c.At(k)); err != nil {
				return nil, fmt.Errorf("part %d: %w", k, err)
			}
		}
		content = jinja.NewList(parts...)
	default:
		return nil, fmt.Errorf("content is neither a string nor a list of parts")
	}
	out.Set("content", content)
	return out, nil
}

// tidyPart checks a part of a content. What the model refused is a text, too.
func tidyPart(v jinja.Value) (jinja.Value, error) {
	d, ok := v.(*jinja.Dict)
	if !ok {
		return nil, fmt.Errorf("not an object")
	}
	typ, ok := get(d, "type").(string)
	if !ok {
		return nil, fmt.Errorf("has no type")
	}
	if typ != "text" && typ != "refusal" {
		return v, nil
	}
	text, ok := get(d, typ).(string)
	if !ok {
		return nil, fmt.Errorf("has no %s", typ)
	}
	if typ == "refusal" {
		return textPart(text), nil
	}
	return v, nil
}

// withArguments returns tool calls with other arguments. change gets those of a call, nil for
// none, and returns what takes their place, or false to leave them. Calls are copied before
// they change.
func withArguments(calls *jinja.List, change func(given jinja.Value) (jinja.Value, bool, error)) (*jinja.List, error) {
	out := make([]jinja.Value, calls.Len())
	for i := range out {
		out[i] = calls.At(i)
		call, _ := out[i].(*jinja.Dict)
		if call == nil {
			continue
		}
		function, _ := get(call, "function").(*jinja.Dict)
		if function == nil {
			continue
		}
		value, other, err := change(get(function, "arguments"))
		if err != nil {
			return nil, fmt.Errorf("arguments of tool call %d: %w", i, err)
		}
		if other {
			call, function = copyDict(call), copyDict(function)
			function.Set("arguments", value)
			call.Set("function", function)
			out[i] = call
		}
	}
	return jinja.NewList(out...), nil
}

// forms returns the forms to try, the preferred one first.
func (c *conversation) forms(t *template) []form {
	first := form{joinParts: !t.parts}
	forms := []form{first}
	vary := func(useful bool, change func(*form)) {
		if !useful {
			return
		}
		for _, f := range forms[:len(forms):len(forms)] {
			change(&f)
			forms = append(forms, f)
		}
	}
	vary(c.arguments, func(f *form) { f.textArguments = true })
	vary(c.lists && !first.joinParts, func(f *form) { f.joinParts = true })
	vary(c.systems > 1, func(f *form) { f.mergeSystem = true })
	vary(c.cut, func(f *form) { f.wrapArguments = true })
	return forms
}

// shape returns the messages in a form.
func (c *conversation) shape(t *template, f form) (*jinja.List, error) {
	var out []jinja.Value
	var system []jinja.Value // contents of the system messages to merge
	for i, m := range c.messages {
		changed := copyDict(m)
		if get(m, "role") == "developer" && !t.developers {
			changed.Set("role", "system")
		}
		switch content := get(m, "content").(type) {
		case *jinja.List:
			if f.joinParts {
				text, err := joinText(content)
				if err != nil {
					return nil, fmt.Errorf("%w: message %d: %w", ErrMessages, i, err)
				}
				changed.Set("content", text)
			}
		case string:
			if t.onlyParts && !f.joinParts {
				changed.Set("content", jinja.NewList(textPart(content)))
			}
		case nil:
			switch {
			case !t.noNull:
			case t.onlyParts:
				changed.Set("content", jinja.NewList())
			default:
				changed.Set("content", "")
			}
		}
		if !f.textArguments {
			if calls, _ := get(m, "tool_calls").(*jinja.List); calls != nil {
				calls, err := withArguments(calls, func(given jinja.Value) (jinja.Value, bool, error) { return parsed(given, c.values, f.wrapArguments) })
				if err != nil {
					return nil, fmt.Errorf("%w: message %d: %w", ErrMessages, i, err)
				}
				changed.Set("tool_calls", calls)
			}
		}
		if role := get(changed, "role"); f.mergeSystem && (role == "system" || role == "developer") {
			system = append(system, get(changed, "content"))
			continue
		}
		out = append(out, changed)
	}
	if f.mergeSystem {
		merged, err := mergeSystem(system)
		if err != nil {
			return nil, err
		}
		out = append([]jinja.Value{merged}, out...)
	}
	return jinja.NewList(out...), nil
}

func copyDict(d *jinja.Dict) *jinja.Dict {
	c := jinja.NewDict()
	for i := range d.Len() {
		c.Set(d.Entry(i))
	}
	return c
}

func textPart(text string) jinja.Value {
	part := jinja.NewDict()
	part.Set("type", "text")
	part.Set("text", text)
	return part
}

// joinText joins text parts by line breaks; other parts cannot become text.
func joinText(parts *jinja.List) (string, error) {
	var texts []string
	for i := range parts.Len() {
		part := parts.At(i).(*jinja.Dict) // checked when read
		if typ := get(part, "type"); typ != "text" {
			return "", fmt.Errorf("part %d has type %v, but the model's chat template takes text only", i, typ)
		}
		texts = append(texts, get(part, "text").(string))
	}
	return strings.Join(texts, "\n"), nil
}

// mergeSystem makes one system message of the contents of several.
func mergeSystem(contents []jinja.Value) (jinja.Value, error) {
	var texts []string
	for _, c := range contents {
		switch c := c.(type) {
		case string:
			texts = append(texts, c)
		case *jinja.List:
			text, err := joinText(c)
			if err != nil {
				return nil, fmt.Errorf("%w: system message: %w", ErrMessages, err)
			}
			texts = append(texts, text)
		}
	}
	m := jinja.NewDict()
	m.Set("role", "system")
	m.Set("content", strings.Join(texts, "\n\n"))
	return m, nil
}

// parsed returns the value of arguments that are JSON text, false for others. No text is no
// arguments. With wrap, what is not JSON becomes an object that holds the text.
func parsed(given jinja.Value, values *int, wrap bool) (jinja.Value, bool, error) {
	text, ok := given.(string)
	if !ok {
		return nil, false, nil
	}
	if strings.TrimSpace(text) == "" {
		return jinja.NewDict(), true, nil
	}
	v, err := jinja.FromJSONWithin(json.RawMessage(text), values)
	switch {
	case errors.Is(err, jsonscan.ErrValues):
		return nil, false, err
	case err == nil:
		return v, true, nil
	case !wrap:
		return nil, false, nil
	}
	d := jinja.NewDict()
	d.Set("arguments", text)
	return d, true, nil
}
