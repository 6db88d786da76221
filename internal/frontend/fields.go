package frontend

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// field reads one request field. A JSON null is not passed on: it means absent.
type field func(name string, raw json.RawMessage) *apiError

// fields are all fields that an endpoint knows, by name.
type fields map[string]field

// read decodes a JSON object field by field, so that every complaint can name its
// field. A field that the endpoint does not know is an error.
func (f fields) read(body []byte) *apiError {
	if !utf8.Valid(body) {
		return invalid("", "The request body is not valid UTF-8.")
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return invalid("", "The request body is empty; a JSON object is expected.")
	}
	var members map[string]json.RawMessage
	err := json.Unmarshal(body, &members)
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return invalid("", "The request body is not valid JSON: %s (byte %d).", syntax.Error(), syntax.Offset)
	case err != nil, members == nil:
		return invalid("", "The request body must be a JSON object.")
	}
	names := make([]string, 0, len(members))
	for name := range members {
		names = append(names, name)
	}
	slices.Sort(names) // the same request always gets the same answer
	for _, name := range names {
		read, known := f[name]
		if !known {
			return invalid(name, "Unknown parameter: '%s'.", name).withCode("unknown_parameter")
		}
		if isNull(members[name]) {
			continue
		}
		if err := read(name, members[name]); err != nil {
			return err
		}
	}
	return nil
}

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }

// The constructors below return fields that fill a variable.

func text(v *string) field {
	return func(name string, raw json.RawMessage) *apiError {
		if json.Unmarshal(raw, v) != nil {
			return wrongType(name, "a string")
		}
		return nil
	}
}

func flag(v *bool) field {
	return func(name string, raw json.RawMessage) *apiError {
		if json.Unmarshal(raw, v) != nil {
			return wrongType(name, "a boolean")
		}
		return nil
	}
}

// number reads a finite number between lo and hi.
func number(v **float64, lo, hi float64) field {
	return func(name string, raw json.RawMessage) *apiError {
		var x float64
		if json.Unmarshal(raw, &x) != nil || math.IsInf(x, 0) {
			return wrongType(name, "a number")
		}
		if x < lo || x > hi {
			return wrongValue(name, "%v is not between %v and %v", x, lo, hi)
		}
		*v = &x
		return nil
	}
}

// integer reads a whole number between lo and hi.
func integer(v **int64, lo, hi int64) field {
	return func(name string, raw json.RawMessage) *apiError {
		var x int64
		if json.Unmarshal(raw, &x) != nil {
			return wrongType(name, "an integer")
		}
		if x < lo || x > hi {
			return wrongValue(name, "%d is not between %d and %d", x, lo, hi)
		}
		*v = &x
		return nil
	}
}

// stops reads a string or a list of strings.
func stops(v *[]string, most int) field {
	return func(name string, raw json.RawMessage) *apiError {
		var one string
		if json.Unmarshal(raw, &one) == nil {
			*v = []string{one}
		} else if unmarshalList(raw, v) != nil {
			return wrongType(name, "a string or a list of strings")
		}
		if len(*v) > most {
			return wrongValue(name, "%d strings, at most %d are allowed", len(*v), most)
		}
		if slices.Contains(*v, "") {
			return wrongValue(name, "an empty string would stop everything")
		}
		return nil
	}
}

// tokenIDs reads a list of token ids.
func tokenIDs(v *[]uint32) field {
	return func(name string, raw json.RawMessage) *apiError {
		if unmarshalList(raw, v) != nil {
			return wrongType(name, "a list of token ids")
		}
		return nil
	}
}

var errNullElement = errors.New("a null in a list")

// unmarshalList reads a list, in which null is no element: encoding/json would take
// it for zero.
func unmarshalList[T any](raw json.RawMessage, v *[]T) error {
	var list []*T
	if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	*v = make([]T, len(list))
	for i, e := range list {
		if e == nil {
			return errNullElement
		}
		(*v)[i] = *e
	}
	return nil
}

// object reads an object and hands its members on, those that are not null.
func object(member func(path, key string, raw json.RawMessage) *apiError) field {
	return func(name string, raw json.RawMessage) *apiError {
		var members map[string]json.RawMessage
		if json.Unmarshal(raw, &members) != nil {
			return wrongType(name, "an object")
		}
		keys := make([]string, 0, len(members))
		for key := range members {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		for _, key := range keys {
			if isNull(members[key]) {
				continue
			}
			if err := member(name+"."+key, key, members[key]); err != nil {
				return err
			}
		}
		return nil
	}
}

// ignored accepts a field that says nothing about the answer.
func ignored(string, json.RawMessage) *apiError { return nil }

// only accepts a field as long as it has one of the given JSON values, those that
// ask for what this server does anyway. Numbers are compared by value.
func only(values ...string) field {
	return func(name string, raw json.RawMessage) *apiError {
		var compact bytes.Buffer
		if json.Compact(&compact, raw) == nil && slices.ContainsFunc(values, func(v string) bool { return sameJSON(v, compact.String()) }) {
			return nil
		}
		e := unsupported(name)
		if len(values) > 0 {
			e.Message = fmt.Sprintf("Unsupported value for '%s': this server supports %s.", name, strings.Join(values, ", "))
		}
		return e
	}
}

func sameJSON(a, b string) bool {
	var x, y float64
	return a == b || json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && x == y
}
