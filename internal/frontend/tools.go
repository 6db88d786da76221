package frontend

import (
	"encoding/json"
	"regexp"
	"strconv"

	"github.com/dynctl/dynctl/internal/chat/parse"
)

// toolRequest are the fields of a chat about tools.
type toolRequest struct {
	raw      json.RawMessage // as templates see them; nil for none
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

// readTools reads the list of functions that the model may call. strict is
// accepted: without it a model tries the same, and it is the default of many
// clients' helpers.
func (t *toolRequest) readTools(name string, raw json.RawMessage) *apiError {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return wrongType(name, "a list of tools")
	}
	if len(list) > maxTools {
		return wrongValue(name, "%d tools, at most %d are allowed", len(list), maxTools)
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
	var schema map[string]json.RawMessage
	switch {
	case json.Unmarshal(tool.Function, &f) != nil:
		return none, wrongType(at, "an object with name, description and parameters")
	case f.Name == nil:
		return none, missing(at + ".name")
	case len(*f.Name) > maxToolName || !toolName.MatchString(*f.Name):
		return none, wrongValue(at+".name", "a name has 1 to %d letters, digits or any of _.:/-", maxToolName)
	case len(f.Description) > 0 && json.Unmarshal(f.Description, &description) != nil:
		return none, wrongType(at+".description", "a string")
	case len(f.Parameters) > 0 && json.Unmarshal(f.Parameters, &schema) != nil:
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

// check looks at fields that depend on each other. Forcing a call is refused: only
// constrained decoding can keep such a promise, and workers have none.
func (t *toolRequest) check() *apiError {
	forced := t.named || t.choice == choiceRequired
	switch {
	case forced && t.raw == nil:
		return invalid("tool_choice", "The 'tool_choice' parameter is only allowed when 'tools' are specified.")
	case t.named && !t.has(t.choice):
		return wrongValue("tool_choice.function.name", "there is no function '%s' among the tools", t.choice)
	case forced:
		e := unsupported("tool_choice")
		e.Message = `Unsupported value for 'tool_choice': to force a call, output must be constrained, which this server cannot do; use "auto" or "none".`
		return e
	}
	return nil
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

// shown are the tools that the template shows to the model: none if it may not call
// them.
func (t *toolRequest) shown() json.RawMessage {
	if !t.active() {
		return nil
	}
	return t.raw
}

// checkTurn looks at what messages say about tools: the calls of an assistant, and
// which of them a tool answers.
func checkTurn(at, role string, raw json.RawMessage) *apiError {
	var turn struct {
		ToolCalls  json.RawMessage `json:"tool_calls"`
		ToolCallID json.RawMessage `json:"tool_call_id"`
	}
	if json.Unmarshal(raw, &turn) != nil {
		return wrongType(at, "an object with a role and content")
	}
	switch {
	case role == "tool":
		var id *string
		if len(turn.ToolCallID) > 0 && json.Unmarshal(turn.ToolCallID, &id) != nil {
			return wrongType(at+".tool_call_id", "a string")
		}
		if id == nil {
			return missing(at + ".tool_call_id")
		}
	case role == "assistant" && len(turn.ToolCalls) > 0:
		var calls []json.RawMessage
		if json.Unmarshal(turn.ToolCalls, &calls) != nil {
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

// checkCall looks at a call of an earlier turn.
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
