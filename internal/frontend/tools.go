package frontend

import (
	"encoding/json"
	"errors"
	"regexp"
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/chat/parse"
	"github.com/dynctl/dynctl/internal/grammar"
	"github.com/dynctl/dynctl/internal/protocol"
)

// toolRequest holds the fields of a chat about tools.
type toolRequest struct {
	raw      json.RawMessage // as templates get them; nil for none
	list     []parse.Tool
	choice   string // auto, none, required or, for one function, its name
	named    bool   // choice is a name
	parallel *bool
}

const (
	maxTools    = 1536
	maxToolName = 128 // bytes

	choiceAuto     = "auto"
	choiceNone     = "none"
	choiceRequired = "required"
)

func (t *toolRequest) fields(f fields) {
	f["tools"] = t.readTools
	f["tool_choice"] = t.readChoice
	f["parallel_tool_calls"] = func(name string, raw json.RawMessage) *apiError {
		t.parallel = new(bool)
		return flag(t.parallel)(name, raw)
	}
}

var toolName = regexp.MustCompile(`^[A-Za-z0-9_.:/-]+$`)

// readTools reads the list of functions that the model may call. It accepts strict, which
// many client libraries set by default; without it a model tries to follow the schema
// just the same.
func (t *toolRequest) readTools(name string, raw json.RawMessage) *apiError {
	list, err := rawList(raw, maxTools)
	switch {
	case errors.Is(err, errTooMany):
		return wrongValue(name, "at most %d tools are allowed", maxTools)
	case err != nil:
		return wrongType(name, "a list of tools")
	}
	seen := map[string]bool{}
	for i, raw := range list {
		at := name + "[" + strconv.Itoa(i) + "]"
		tool, err := readTool(at, raw)
		if err != nil {
			return err
		}
		if seen[tool.Name] {
			return wrongValue(at+".function.name", "there are two functions named '%s'", tool.Name)
		}
		seen[tool.Name] = true
		t.list = append(t.list, tool)
	}
	if len(list) > 0 {
		t.raw = raw
	}
	return nil
}

func readTool(at string, raw json.RawMessage) (parse.Tool, *apiError) {
	var tool struct {
		Type     *string         `json:"type"`
		Function json.RawMessage `json:"function"`
	}
	var f struct {
		Name        *string         `json:"name"`
		Description json.RawMessage `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	}
	none := parse.Tool{}
	switch {
	case isNull(raw) || json.Unmarshal(raw, &tool) != nil:
		return none, wrongType(at, "an object with type and function")
	case tool.Type == nil:
		return none, missing(at + ".type")
	case *tool.Type != "function":
		return none, wrongValue(at+".type", "'%s' is not supported, only 'function' is", *tool.Type)
	case len(tool.Function) == 0 || isNull(tool.Function):
		return none, missing(at + ".function")
	}
	at += ".function"
	var description *string
	switch {
	case json.Unmarshal(tool.Function, &f) != nil:
		return none, wrongType(at, "an object with name, description and parameters")
	case f.Name == nil:
		return none, missing(at + ".name")
	case len(*f.Name) > maxToolName || !toolName.MatchString(*f.Name):
		return none, wrongValue(at+".name", "a name has 1 to %d letters, digits or any of _.:/-", maxToolName)
	case len(f.Description) > 0 && json.Unmarshal(f.Description, &description) != nil:
		return none, wrongType(at+".description", "a string")
	case len(f.Parameters) > 0 && f.Parameters[0] != '{' && !isNull(f.Parameters):
		return none, wrongType(at+".parameters", "an object, the JSON schema of the arguments")
	}
	return parse.Tool{Name: *f.Name, Parameters: f.Parameters}, nil
}

// readChoice reads a mode, or an object that names one function.
func (t *toolRequest) readChoice(name string, raw json.RawMessage) *apiError {
	if json.Unmarshal(raw, &t.choice) == nil {
		switch t.choice {
		case choiceAuto, choiceNone, choiceRequired:
			return nil
		}
		return wrongValue(name, "'%s' is not one of 'auto', 'none' and 'required'", t.choice)
	}
	var c struct {
		Type     *string `json:"type"`
		Function *struct {
			Name *string `json:"name"`
		} `json:"function"`
	}
	switch {
	case json.Unmarshal(raw, &c) != nil:
		return wrongType(name, "a string, or an object that names a function")
	case c.Type == nil:
		return missing(name + ".type")
	case *c.Type != "function":
		return wrongValue(name+".type", "'%s' is not supported, only 'function' is", *c.Type)
	case c.Function == nil:
		return missing(name + ".function")
	case c.Function.Name == nil:
		return missing(name + ".function.name")
	}
	t.choice, t.named = *c.Function.Name, true
	return nil
}

// forced reports whether the answer must be a call.
func (t *toolRequest) forced() bool { return t.named || t.choice == choiceRequired }

// check validates fields that depend on each other. A forced call constrains the output.
func (t *toolRequest) check(g *guidedParams) *apiError {
	forced := t.forced()
	switch {
	case forced && t.raw == nil:
		return invalid("tool_choice", "The 'tool_choice' parameter is only allowed when 'tools' are specified.")
	case t.named && !t.has(t.choice):
		return wrongValue("tool_choice.function.name", "there is no function '%s' among the tools", t.choice)
	case t.active() && g.spec != nil:
		return wrongValue(g.param, "an output of that form can hold no tool call: set 'tool_choice' to \"none\", or leave one of them out")
	case forced && t.bytes() > maxConstraint:
		return tooLarge("tools", t.bytes())
	case forced:
		g.param, g.spec = "tools", t.calls()
	}
	return nil
}

// bytes returns the total size of the schemas of all functions.
func (t *toolRequest) bytes() (n int) {
	for _, tool := range t.list {
		n += len(tool.Parameters)
	}
	return n
}

// calls returns the constraint of an answer that must call: a list of calls in the form
// that package parse reads, each of one of the allowed functions. The arguments are an
// object even if their schema allows more. The schemas stay as they were sent: each is a
// resource of its own within the constraint, so that its references keep their meaning.
func (t *toolRequest) calls() *protocol.Guided {
	var defs, anyOf []string
	for i, tool := range t.list {
		if t.named && tool.Name != t.choice {
			continue
		}
		id := "tool" + strconv.Itoa(i)
		defs = append(defs, strconv.Quote(id)+":"+asResource(tool.Parameters, id))
		anyOf = append(anyOf, `{"type":"object","properties":{"name":{"const":`+strconv.Quote(tool.Name)+`},"parameters":{"type":"object","$ref":"#/$defs/`+id+
			`"}},"required":["name","parameters"],"additionalProperties":false}`)
	}
	most := ""
	if t.named || t.parallel != nil && !*t.parallel {
		most = `,"maxItems":1`
	}
	text := `{"$defs":{` + strings.Join(defs, ",") + `},"type":"array","minItems":1` + most + `,"items":{"anyOf":[` + strings.Join(anyOf, ",") + `]}}`
	return &protocol.Guided{Kind: string(grammar.KindJSONSchema), Text: text, Lax: true, Compact: true}
}

// asResource returns a schema of an object with an $id, its own if it has one.
func asResource(schema json.RawMessage, id string) string {
	text := strings.TrimSpace(string(schema))
	if text == "" || text == "null" {
		text = "{}"
	}
	var own struct {
		ID *string `json:"$id"`
	}
	rest := strings.TrimSpace(text[1:])
	switch {
	case json.Unmarshal([]byte(text), &own) == nil && own.ID != nil:
		return text
	case rest == "}":
		return `{"$id":` + strconv.Quote(id) + "}"
	}
	return `{"$id":` + strconv.Quote(id) + "," + rest
}

func (t *toolRequest) has(name string) bool {
	for _, tool := range t.list {
		if tool.Name == name {
			return true
		}
	}
	return false
}

// active reports whether the model may call tools.
func (t *toolRequest) active() bool { return t.raw != nil && t.choice != choiceNone }

// shown returns the tools that the template shows to the model: none if it may not call
// them.
func (t *toolRequest) shown() json.RawMessage {
	if !t.active() {
		return nil
	}
	return t.raw
}

// checkTurn checks what messages say about tools: the calls of an assistant, and which
// call a tool answers.
func checkTurn(at string, t *turn) *apiError {
	switch {
	case *t.role == "tool":
		var id *string
		if len(t.toolCallID) > 0 && json.Unmarshal(t.toolCallID, &id) != nil {
			return wrongType(at+".tool_call_id", "a string")
		}
		if id == nil {
			return missing(at + ".tool_call_id")
		}
	case *t.role == "assistant" && len(t.calls) > 0 && !isNull(t.calls):
		calls, err := rawList(t.calls, maxParts)
		switch {
		case errors.Is(err, errTooMany):
			return wrongValue(at+".tool_calls", "at most %d calls are allowed", maxParts)
		case err != nil:
			return wrongType(at+".tool_calls", "a list of calls")
		}
		for i, c := range calls {
			if err := checkCall(at+".tool_calls["+strconv.Itoa(i)+"]", c); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkCall checks a call of an earlier turn.
func checkCall(at string, raw json.RawMessage) *apiError {
	var call struct {
		Type     *string         `json:"type"`
		Function json.RawMessage `json:"function"`
	}
	var f struct {
		Name      *string         `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	var arguments *string
	switch {
	case isNull(raw) || json.Unmarshal(raw, &call) != nil:
		return wrongType(at, "an object with id, type and function")
	case call.Type != nil && *call.Type != "function":
		return wrongValue(at+".type", "'%s' is not supported, only 'function' is", *call.Type)
	case len(call.Function) == 0 || isNull(call.Function):
		return missing(at + ".function")
	case json.Unmarshal(call.Function, &f) != nil:
		return wrongType(at+".function", "an object with name and arguments")
	case f.Name == nil:
		return missing(at + ".function.name")
	case len(f.Arguments) > 0 && json.Unmarshal(f.Arguments, &arguments) != nil:
		return wrongType(at+".function.arguments", "a string that holds JSON")
	}
	return nil
}
