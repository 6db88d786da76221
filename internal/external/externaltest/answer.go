package externaltest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/dynctl/dynctl/internal/cluster"
)

// shapeIDs is the form of /inference/v1/generate.
const shapeIDs shape = 2

// answer writes an answer of the OpenAI API.
type answer struct {
	c    *call
	s    *sequence
	form shape
	ids  bool // tell tokens
	// raw has members of the whole answer that keep their bytes, which encoding/json would change.
	raw   map[string]json.RawMessage
	tell  bool // log probabilities
	top   int
	asIDs bool // tokens as token_id:7
	extra map[string]any
	// choice has members for each choice, of the whole answer.
	choice map[string]any
	cached int
}

// logprobs reads what a request asks for.
func (a *answer) logprobs(raw json.RawMessage, asIDs bool) {
	a.asIDs = asIDs
	if raw == nil || string(raw) == "null" || string(raw) == "false" {
		return
	}
	a.tell = true
	if json.Unmarshal(raw, &a.top) != nil {
		a.top = 0 // a chat's "true"
	}
}

func (a *answer) name(id uint32) string {
	if a.asIDs {
		return fmt.Sprintf("token_id:%d", id)
	}
	return Text([]uint32{id})
}

// logprobsOf returns the log probabilities of the last tokens of the sequence.
func (a *answer) logprobsOf(ids []uint32) any {
	if !a.tell {
		return nil
	}
	first := len(a.s.ids) - len(ids)
	if a.form != shapeText {
		var content []any
		for i, id := range ids {
			before := a.s.ids[:first+i]
			top := []any{}
			for _, t := range a.topOf(before, id) {
				top = append(top, map[string]any{"token": a.name(t), "logprob": Logprob(before, t)})
			}
			content = append(content, map[string]any{"token": a.name(id), "logprob": Logprob(before, id), "bytes": nil, "top_logprobs": top})
		}
		return map[string]any{"content": content}
	}
	var names []string
	var values []float32
	var tops []map[string]float32
	for i, id := range ids {
		before := a.s.ids[:first+i]
		names, values = append(names, a.name(id)), append(values, Logprob(before, id))
		top := map[string]float32{}
		for _, t := range a.topOf(before, id) {
			top[a.name(t)] = Logprob(before, t)
		}
		tops = append(tops, top)
	}
	return map[string]any{"tokens": names, "token_logprobs": values, "top_logprobs": tops, "text_offset": make([]int, len(ids))}
}

func (a *answer) object(stream bool) map[string]any {
	o := map[string]any{"id": "cmpl-1", "created": 1, "model": a.c.d.o.Model}
	switch {
	case a.form == shapeText:
		o["object"] = "text_completion"
	case a.form == shapeChat && stream:
		o["object"] = "chat.completion.chunk"
	case a.form == shapeChat:
		o["object"] = "chat.completion"
	default:
		o = map[string]any{"request_id": "generate-tokens-1"}
	}
	return o
}

func (a *answer) choiceOf(ids []uint32, text, reason string, stream bool) map[string]any {
	choice := map[string]any{"index": 0, "finish_reason": nil}
	if reason != "" {
		choice["finish_reason"] = reason
	}
	switch {
	case a.form == shapeText:
		choice["text"] = text
	case a.form == shapeChat && stream:
		choice["delta"] = map[string]any{"content": text, "reasoning_content": "", "zz_future": json.RawMessage("9007199254740993")}
	case a.form == shapeChat:
		choice["message"] = map[string]any{"role": "assistant", "content": text, "tool_calls": []any{}}
	}
	if a.ids {
		choice["token_ids"] = ids
	}
	if l := a.logprobsOf(ids); l != nil {
		choice["logprobs"] = l
	}
	return choice
}

// stream writes an answer as a stream.
func (a *answer) stream(options json.RawMessage) {
	c := a.c
	c.begin()
	prompt := len(a.s.ids)
	var want struct {
		Usage bool `json:"include_usage"`
	}
	asked := options != nil && json.Unmarshal(options, &want) == nil && want.Usage
	ids, _, ok := c.generate(a.s, func(id uint32, reason string) {
		o := a.object(true)
		if asked && c.d.o.Backend == cluster.BackendOpenAI { // as OpenAI's own
			o["usage"] = nil
		}
		o["choices"] = []any{a.choiceOf([]uint32{id}, a.s.text(id, reason), reason, true)}
		c.event(o)
	})
	if !ok {
		return
	}
	if asked {
		o := a.object(true)
		o["choices"], o["usage"] = []any{}, c.usage(prompt, len(ids), a.cachedOf(prompt))
		c.event(o)
	}
	c.done()
}

func (a *answer) cachedOf(prompt int) int {
	if a.cached != 0 {
		return a.cached
	}
	return cachedOf(prompt)
}

// whole writes an answer as one object.
func (a *answer) whole() {
	c := a.c
	prompt := len(a.s.ids)
	ids, reason, ok := c.generate(a.s, nil)
	if !ok {
		return
	}
	visible := ids
	if reason == "stop" {
		visible = ids[:len(ids)-1]
	}
	o := a.object(false)
	choice := a.choiceOf(ids, Text(visible), reason, false)
	maps.Copy(choice, a.choice)
	o["choices"], o["usage"] = []any{choice}, c.usage(prompt, len(ids), a.cachedOf(prompt))
	maps.Copy(o, a.extra)
	c.w.Header().Set("Content-Type", "application/json")
	c.write(o, a.raw)
	c.complete = true
}

// write writes an object, with further members in their bytes.
func (c *call) write(o map[string]any, raw map[string]json.RawMessage) {
	before := "{"
	for _, name := range slices.Sorted(maps.Keys(o)) {
		_, _ = fmt.Fprintf(c.w, "%s%q:", before, name)
		reply(c.w, o[name])
		before = ","
	}
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		_, _ = fmt.Fprintf(c.w, "%s%q:%s", before, name, raw[name])
	}
	_, _ = fmt.Fprint(c.w, "}")
}
