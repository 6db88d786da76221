package frontend

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/dynctl/dynctl/internal/chat/parse"
	"github.com/dynctl/dynctl/internal/grammar"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/protocol"
)

// guidedParams holds the fields that constrain the form of an answer. A request may use
// one of them.
type guidedParams struct {
	param string           // the field that spec came from
	spec  *protocol.Guided // nil for any form
}

func (g *guidedParams) addFields(f fields) {
	f["response_format"] = g.readResponseFormat
	f["guided_json"] = g.one(g.readSchema)
	f["guided_regex"] = g.one(g.readText(grammar.KindRegex))
	f["guided_grammar"] = g.one(g.readText(grammar.KindEBNF))
	f["guided_choice"] = g.one(g.readChoices)
	f["guided_decoding_backend"] = ignored // there is one
	f["structured_outputs"] = object(func(path, key string, raw json.RawMessage) *apiError {
		switch key {
		case "json":
			return g.one(g.readSchema)(path, raw)
		case "regex":
			return g.one(g.readText(grammar.KindRegex))(path, raw)
		case "grammar":
			return g.one(g.readText(grammar.KindEBNF))(path, raw)
		case "choice":
			return g.one(g.readChoices)(path, raw)
		case "json_object":
			var want bool
			if err := flag(&want)(path, raw); err != nil || !want {
				return err
			}
			return g.one(g.anyObject)(path, raw)
		}
		return invalid(path, "Unknown parameter: '%s'.", path).withCode("unknown_parameter")
	})
}

// maxConstraint bounds the JSON of a constraint, in bytes. Package grammar has tighter
// limits for its content.
const maxConstraint = 2 << 20

func tooLarge(name string, n int) *apiError {
	return wrongValue(name, "%d bytes, at most %d are allowed", n, maxConstraint)
}

// one lets only one of the fields be set.
func (g *guidedParams) one(read field) field {
	return func(name string, raw json.RawMessage) *apiError {
		if g.spec != nil {
			return wrongValue(name, "'%s' is given too, and an answer has one form", g.param)
		}
		if err := read(name, raw); err != nil {
			return err
		}
		g.param = name
		return nil
	}
}

func (g *guidedParams) anyObject(string, json.RawMessage) *apiError {
	g.spec = &protocol.Guided{Kind: string(grammar.KindJSONObject)}
	return nil
}

// readSchema reads a JSON schema, or a string that holds one.
func (g *guidedParams) readSchema(name string, raw json.RawMessage) *apiError {
	if len(raw) > maxConstraint {
		return tooLarge(name, len(raw))
	}
	text := string(raw)
	if raw[0] == '"' && json.Unmarshal(raw, &text) != nil {
		return wrongType(name, "a JSON schema")
	}
	g.spec = &protocol.Guided{Kind: string(grammar.KindJSONSchema), Text: text}
	return nil
}

func (g *guidedParams) readText(kind grammar.Kind) field {
	return func(name string, raw json.RawMessage) *apiError {
		if len(raw) > maxConstraint {
			return tooLarge(name, len(raw))
		}
		var s string
		if err := text(&s)(name, raw); err != nil {
			return err
		}
		g.spec = &protocol.Guided{Kind: string(kind), Text: s}
		return nil
	}
}

func (g *guidedParams) readChoices(name string, raw json.RawMessage) *apiError {
	var list []string
	switch {
	case len(raw) > maxConstraint:
		return tooLarge(name, len(raw))
	case unmarshalList(raw, &list, maxConstraint) != nil:
		return wrongType(name, "a list of strings")
	case len(list) == 0:
		return wrongValue(name, "the list is empty")
	}
	g.spec = &protocol.Guided{Kind: string(grammar.KindChoice), Choices: list}
	return nil
}

// readResponseFormat reads OpenAI's field for JSON answers. A schema that is not strict
// is followed as far as possible.
func (g *guidedParams) readResponseFormat(name string, raw json.RawMessage) *apiError {
	if len(raw) > maxConstraint {
		return tooLarge(name, len(raw))
	}
	var f struct {
		Type   *string `json:"type"`
		Schema *struct {
			Name   *string         `json:"name"`
			Strict *bool           `json:"strict"`
			Schema json.RawMessage `json:"schema"`
		} `json:"json_schema"`
	}
	switch {
	case json.Unmarshal(raw, &f) != nil:
		return wrongType(name, "an object with a type")
	case f.Type == nil:
		return missing(name + ".type")
	}
	switch *f.Type {
	case "text":
		return nil
	case "json_object":
		return g.one(g.anyObject)(name, raw)
	case "json_schema":
	default:
		return wrongValue(name+".type", "'%s' is not one of 'text', 'json_object' and 'json_schema'", *f.Type)
	}
	switch {
	case f.Schema == nil:
		return missing(name + ".json_schema")
	case f.Schema.Name == nil:
		return missing(name + ".json_schema.name")
	case len(f.Schema.Schema) == 0 || isNull(f.Schema.Schema):
		return missing(name + ".json_schema.schema")
	}
	if err := g.one(g.readSchema)(name+".json_schema.schema", f.Schema.Schema); err != nil {
		return err
	}
	g.spec.Lax = f.Schema.Strict == nil || !*f.Schema.Strict
	return nil
}

// afterReasoning makes the constraint begin after the reasoning of a chat.
func (g *guidedParams) afterReasoning(m *servedModel, f formats) *apiError {
	if g.spec == nil || f.reasoning == "" {
		return nil
	}
	if parse.Framed(f.tool, f.reasoning) {
		return wrongValue(g.param, "the texts of the model '%s' are framed by special tokens: their form cannot be constrained", m.name)
	}
	p, err := parse.New(parse.Options{Reasoning: f.reasoning, Prompt: f.prompt})
	if err != nil || !p.Thinking() {
		return nil
	}
	for _, mark := range parse.ReasoningEnds(f.reasoning) {
		if id, ok := m.proc.TokenID(mark); ok {
			g.spec.After = append(g.spec.After, id)
		}
	}
	if len(g.spec.After) == 0 {
		return wrongValue(g.param, "the model '%s' reasons first, and no token of its own ends that: the form of its answers cannot be constrained", m.name)
	}
	return nil
}

// bind compiles the constraint for the model and reports its errors.
func (g *guidedParams) bind(ctx context.Context, m *servedModel) *apiError {
	if g.spec == nil {
		return nil
	}
	err := m.proc.CheckGuided(ctx, *g.spec)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return asAPIError(context.Cause(ctx))
	case errors.Is(err, grammar.ErrBusy):
		return overloaded(metrics.RefusedConstraints, allBusy)
	case errors.Is(err, grammar.ErrVocabulary):
		return internalError("The model's tokens cannot be constrained.")
	}
	return wrongValue(g.param, "%v", err)
}
