package parse

import (
	"encoding/json"
	"strings"
)

// Tool is a function that the model may call.
type Tool struct {
	Name       string
	Parameters json.RawMessage // its JSON schema; may be empty
}

// toolset are the tools of a request by name.
type toolset map[string]*toolTypes

type toolTypes struct {
	schema json.RawMessage
	read   bool
	types  map[string]kinds // by parameter
}

func newToolset(tools []Tool) toolset {
	s := toolset{}
	for _, t := range tools {
		s[t.Name] = &toolTypes{schema: t.Parameters}
	}
	return s
}

func (s toolset) has(name string) bool { return s[name] != nil }

// types returns what a parameter may be; a text if nothing is known of it.
func (s toolset) types(name, parameter string) kinds {
	t := s[name]
	if t == nil {
		return isString
	}
	if !t.read {
		t.read = true
		var schema struct {
			Properties map[string]json.RawMessage `json:"properties"`
		}
		if json.Unmarshal(t.schema, &schema) == nil {
			t.types = map[string]kinds{}
			for key, raw := range schema.Properties {
				t.types[key] = kindsOf(t.schema, raw, 0)
			}
		}
	}
	if k := t.types[parameter]; k != 0 {
		return k
	}
	return isString
}

// kinds is a set of JSON types.
type kinds uint8

const (
	isString kinds = 1 << iota
	isNumber
	isInteger
	isBoolean
	isObject
	isArray
	isNull

	isAny = isString | isNumber | isInteger | isBoolean | isObject | isArray | isNull
)

// kindsOf reads the types that a schema within root allows, 0 if it does not say.
func kindsOf(root, raw json.RawMessage, depth int) (k kinds) {
	var schema struct {
		Ref   string            `json:"$ref"`
		Type  json.RawMessage   `json:"type"`
		Null  bool              `json:"nullable"`
		Enum  []json.RawMessage `json:"enum"`
		Const json.RawMessage   `json:"const"`
		AnyOf []json.RawMessage `json:"anyOf"`
		OneOf []json.RawMessage `json:"oneOf"`
		AllOf []json.RawMessage `json:"allOf"`
	}
	if depth > 8 || json.Unmarshal(raw, &schema) != nil {
		return 0
	}
	defer func() {
		if schema.Null && k != 0 {
			k |= isNull
		}
	}()
	var list []string
	var one string
	if json.Unmarshal(schema.Type, &one) == nil {
		list = []string{one}
	} else if json.Unmarshal(schema.Type, &list) != nil {
		list = nil
	}
	for _, name := range list {
		k |= map[string]kinds{
			"string": isString, "number": isNumber, "integer": isInteger, "boolean": isBoolean,
			"object": isObject, "array": isArray, "null": isNull,
		}[name]
	}
	if k != 0 {
		return k
	}
	if schema.Const != nil {
		schema.Enum = append(schema.Enum, schema.Const)
	}
	for _, v := range schema.Enum {
		k |= kindOf(v)
	}
	for _, s := range append(schema.AnyOf, schema.OneOf...) {
		k |= kindsOf(root, s, depth+1)
	}
	for _, s := range schema.AllOf {
		if k == 0 {
			k = kindsOf(root, s, depth+1)
		}
	}
	if k == 0 && schema.Ref != "" {
		k = kindsOf(root, referred(root, schema.Ref), depth+1)
	}
	return k
}

// referred returns the schema that a reference within a schema points to, nil if there is
// none.
func referred(schema json.RawMessage, ref string) json.RawMessage {
	pointer, inside := strings.CutPrefix(ref, "#")
	if !inside {
		return nil
	}
	for _, key := range strings.Split(pointer, "/")[1:] {
		var members map[string]json.RawMessage
		if json.Unmarshal(schema, &members) != nil {
			return nil
		}
		schema = members[strings.NewReplacer("~1", "/", "~0", "~").Replace(key)]
	}
	return schema
}

// kindOf is the type of a JSON value.
func kindOf(v []byte) kinds {
	switch v[0] {
	case '"':
		return isString
	case '{':
		return isObject
	case '[':
		return isArray
	case 't', 'f':
		return isBoolean
	case 'n':
		return isNull
	}
	if strings.ContainsAny(string(v), ".eE") {
		return isNumber
	}
	return isInteger | isNumber
}

// json writes a text as a value of one of the types: as a text if nothing else
// fits, because a wrong type tells the model more than a lost value.
func (k kinds) json(text string) []byte {
	for _, python := range []bool{false, true} {
		if v, ok := convert(text, python); ok && kindOf(v)&k&^isString != 0 {
			return v
		}
	}
	if k == isNumber || k == isInteger { // 3.0 and 1e3 are meant to be whole, 3.5 is as good as it gets
		if v, ok := convert(text, true); ok && kindOf(v)&(isNumber|isInteger) != 0 {
			return v
		}
	}
	out := []byte{'"'}
	for i := range len(text) {
		out = quoted(out, text[i])
	}
	return append(out, '"')
}
