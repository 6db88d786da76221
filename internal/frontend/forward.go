package frontend

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/protocol"
)

// forward is a request for a model of text: its body goes to a server as the client sent it, and
// what the server answers goes back. Only the fields that this frontend acts on are read.
type forward struct {
	params
	api  protocol.API
	body json.RawMessage // without nvext and priority
}

// forwards returns a request to be forwarded if its body names a model of text. Any fault of the
// body is left to whoever reads it whole.
func (f *Frontend) forwards(endpoint string, body []byte) *forward {
	if !f.registry.forwards() {
		return nil // a body is not read twice for nothing
	}
	name := ""
	_ = members(body, func(key string, value json.RawMessage) error {
		if key == "model" {
			return json.Unmarshal(value, &name)
		}
		return nil
	})
	if m := f.registry.find(name); m == nil || !m.text {
		return nil
	}
	api := protocol.APICompletions
	if endpoint == metrics.EndpointChatCompletions {
		api = protocol.APIChat
	}
	return &forward{api: api}
}

// read reads the fields that the frontend acts on and keeps all others as they are.
func (q *forward) read(body []byte) *apiError {
	known := fields{
		"model": text(&q.model), "stream": flag(&q.stream), "n": integer(&q.n, 1, maxChoices), "max_tokens": integer(&q.maxTokens, 1, maxCount),
		"max_completion_tokens": integer(&q.maxTokens, 1, maxCount), "nvext": object(q.nvext.read), "priority": q.nvext.queueing.readPlace,
	}
	seen := map[string]bool{}
	kept := []byte{'{'}
	var bad *apiError
	err := members(body, func(key string, value json.RawMessage) error {
		if seen[key] {
			bad = invalid(key, "The parameter '%s' is given twice.", key)
		}
		if seen[key] = true; len(seen) > maxMembers {
			return errTooMany
		}
		if external.Controls(strings.ToLower(key)) {
			bad = invalid(key, "The parameter '%s' controls the servers of this model and is not taken from clients.", key).withCode("unknown_parameter")
		}
		if read, ok := known[key]; ok && !isNull(value) && bad == nil {
			bad = read(key, value)
		}
		if bad != nil {
			return errStopReading
		}
		if key == "nvext" || key == "priority" { // they are for this frontend
			return nil
		}
		if len(kept) > 1 {
			kept = append(kept, ',')
		}
		kept = appendString(kept, key)
		kept = append(append(kept, ':'), value...)
		return nil
	})
	switch {
	case bad != nil:
		return bad
	case err != nil:
		return fields{}.read(body) // tells what is wrong with it
	}
	q.body = append(kept, '}')
	return nil
}

var errStopReading = errors.New("a field is wrong")

func (q *forward) shared() *params     { return &q.params }
func (q *forward) fields() fields      { return nil }
func (q *forward) check() *apiError    { return nil } // the server checks
func (q *forward) promptField() string { return "" }
func (q *forward) defaultTokens() int  { return 0 }
func (q *forward) forget()             { q.body = nil }

func (q *forward) prompts(context.Context, *servedModel) ([][]uint32, error) {
	return nil, internalError("Internal server error.") // never asked
}

func (q *forward) answer(m *servedModel, _ int64, _ []*choice) answerer {
	return &forwarded{model: m.name}
}

// prepareForward makes the one choice of a request that is forwarded.
func (j *job) prepareForward(q *forward, m *servedModel) (answerer, error) {
	p := &q.params
	p.nvext.resolve(j.f)
	if bad := p.nvext.bind(m); bad != nil {
		return nil, bad
	}
	if bad := j.checkDirect(&p.nvext); bad != nil {
		return nil, bad
	}
	limit := m.card.ContextLength
	if limit <= 0 { // its server does not tell
		limit = maxCount
	}
	if p.maxTokens != nil {
		limit = int(min(*p.maxTokens, int64(limit)))
	}
	c := &choice{raw: true}
	c.gen = j.f.newGeneration(m, protocol.PreprocessedRequest{
		Model: m.name, ModelSum: m.card.Digest, Adapter: m.adapter(), Body: q.body, API: q.api, Stop: protocol.StopConditions{MaxTokens: max(limit, 1)},
		ReceivedAt: j.arrived, Tenant: j.tenant,
	}, j.met)
	j.prompts = []int{c.gen.req.PromptTokens()}
	c.gen.routing, c.gen.id = j.routing, j.id
	p.nvext.apply(c.gen)
	j.choices = []*choice{c}
	if p.nvext.query {
		return q.answer(m, 0, nil), nil
	}
	j.queueing = p.nvext.queueing
	if err := j.admit(m); err != nil {
		return nil, err
	}
	return q.answer(m, 0, nil), nil
}

// takeRaw passes on one output of a server.
func (j *job) takeRaw(c *choice, o protocol.EngineOutput, receive func(delta) error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if o.Timing != nil && !c.timed {
		c.timed, c.cached, c.cacheUnknown = true, o.Timing.CachedTokens, o.Timing.CacheUnknown
		j.f.stats.queued(c.gen.began.Sub(j.arrived) + time.Duration(o.Timing.QueueNS))
	}
	if o.Raw != nil {
		j.count(c, 1) // a chunk is about one token; the end tells how many there were
	}
	if u := o.Usage; u != nil {
		if u.PromptTokens > 0 {
			j.prompts[0] = u.PromptTokens
		}
		if c.cacheUnknown {
			c.cached, c.cacheUnknown = u.CachedTokens, false
		}
		if u.CompletionTokens > 0 {
			c.pass.Charge(float64(max(u.CompletionTokens-c.tokens, 0)))
			j.outN += u.CompletionTokens - c.tokens
			c.tokens = u.CompletionTokens
		}
	}
	if o.Finish == protocol.FinishError {
		j.f.log.Debug("engine reports an error", "request", j.id, "error", o.Error)
		return internalError("The engine failed.")
	}
	c.finish = string(o.Finish)
	if o.Raw == nil {
		return nil
	}
	return receive(delta{raw: o.Raw})
}

// forwarded writes what a server answers.
type forwarded struct{ model string }

func (a *forwarded) appendDelta(dst []byte, d delta) []byte {
	dst = append(dst, "data: "...)
	dst = appendOneLine(dst, named(d.raw, a.model))
	return append(dst, "\n\n"...)
}

// lastEvent implements answerer: the server has sent its own. Only details of the route are told
// beside it.
func (a *forwarded) lastEvent(_ *usage, e *extension) []byte {
	if e == nil {
		return nil
	}
	text, err := json.Marshal(map[string]any{"object": "nvext", "model": a.model, "choices": []int{}, "nvext": e})
	if err != nil {
		return nil
	}
	return append(append([]byte("data: "), text...), "\n\n"...)
}

func (a *forwarded) whole(choices []*choice, _ usage, e *extension) any {
	if len(choices) == 0 { // a query
		return map[string]any{"object": "nvext", "model": a.model, "choices": []int{}, "nvext": e}
	}
	out := named(choices[0].whole, a.model)
	if e != nil {
		if text, err := json.Marshal(e); err == nil {
			out = withMember(out, "nvext", text)
		}
	}
	return out
}

// named returns an object of a server with the name by which the model is served here.
func named(raw json.RawMessage, model string) json.RawMessage {
	if bytes.Contains(raw, appendString([]byte(`"model":`), model)) {
		return raw
	}
	return withMember(raw, "model", appendString(nil, model))
}

// withMember returns an object with one member set; what is no object stays as it is.
func withMember(raw json.RawMessage, name string, value json.RawMessage) json.RawMessage {
	out, done := []byte{'{'}, false
	err := members(raw, func(key string, v json.RawMessage) error {
		if len(out) > 1 {
			out = append(out, ',')
		}
		if key == name {
			v, done = value, true
		}
		out = appendString(out, key)
		out = append(append(out, ':'), v...)
		return nil
	})
	if err != nil {
		return raw
	}
	if !done {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(appendString(out, name), ':'), value...)
	}
	return append(out, '}')
}

// appendOneLine appends JSON without line breaks, which would end an event.
func appendOneLine(dst []byte, raw json.RawMessage) []byte {
	if !bytes.ContainsAny(raw, "\r\n") {
		return append(dst, raw...)
	}
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return append(dst, bytes.ReplaceAll(bytes.ReplaceAll(raw, []byte("\r"), nil), []byte("\n"), []byte(" "))...)
	}
	return append(dst, b.Bytes()...)
}
