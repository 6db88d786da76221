package frontend

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// field reads one request field. It is not called for JSON null, which means absent.
type field func(name string, raw json.RawMessage) *apiError

// fields maps names to all fields that an endpoint knows.
type fields map[string]field

// read decodes a JSON object field by field, so that every error can name its field.
// Unknown fields are errors.
func (f fields) read(body []byte) *apiError {
	if !utf8.Valid(body) {
		return invalid("", "The request body is not valid UTF-8.")
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return invalid("", "The request body is empty; a JSON object is expected.")
	}
	given := map[string]json.RawMessage{}
	err := members(body, func(name string, value json.RawMessage) error {
		if given[name] = value; len(given) > maxMembers {
			return errTooMany
		}
		return nil
	})
	switch {
	case errors.Is(err, errTooMany):
		return invalid("", "The request body has more than %d members.", maxMembers)
	case err != nil:
		var syntax *json.SyntaxError
		if errors.As(json.Unmarshal(body, new(struct{})), &syntax) {
			return invalid("", "The request body is not valid JSON: %s (byte %d).", syntax.Error(), syntax.Offset)
		}
		return invalid("", "The request body must be a JSON object.")
	}
	names := slices.Sorted(maps.Keys(given)) // the same request always gets the same answer
	for _, name := range names {
		read, known := f[name]
		if !known {
			return invalid(name, "Unknown parameter: '%s'.", name).withCode("unknown_parameter")
		}
		if isNull(given[name]) {
			continue
		}
		if err := read(name, given[name]); err != nil {
			return err
		}
	}
	return nil
}

// Limits of lists and objects in requests that have no limits of their own.
const (
	maxMembers   = 4096    // of an object
	maxTokenIDs  = 1 << 20 // in a list
	maxStopIDs   = 1024
	maxStop      = 4 << 10  // bytes of a stop string
	maxStopBytes = 16 << 10 // of all of them
)

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

// integer reads a whole number between lo and hi, in any spelling: 5.0 and 5e0 are integers
// in JSON Schema, and some languages have no others.
func integer(v **int64, lo, hi int64) field {
	return func(name string, raw json.RawMessage) *apiError {
		var x int64
		if json.Unmarshal(raw, &x) != nil {
			const exact = 1 << 53 // from there on, float64 skips integers
			var f float64
			if json.Unmarshal(raw, &f) != nil || f != math.Trunc(f) || math.Abs(f) >= exact {
				return wrongType(name, "an integer")
			}
			x = int64(f)
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
		} else if err := unmarshalList(raw, v, most); errors.Is(err, errTooMany) {
			return wrongValue(name, "at most %d strings are allowed", most)
		} else if err != nil {
			return wrongType(name, "a string or a list of strings")
		}
		total := 0
		for _, s := range *v {
			if total += len(s); len(s) > maxStop {
				return wrongValue(name, "a string of %d bytes, at most %d are allowed", len(s), maxStop)
			}
		}
		if total > maxStopBytes {
			return wrongValue(name, "%d bytes in all strings, at most %d are allowed", total, maxStopBytes)
		}
		if slices.Contains(*v, "") {
			return wrongValue(name, "an empty string would stop everything")
		}
		return nil
	}
}

// tokenIDs reads a list of token ids.
func tokenIDs(v *[]uint32, most int) field {
	return func(name string, raw json.RawMessage) *apiError {
		switch err := unmarshalIDs(raw, v, most); {
		case errors.Is(err, errTooMany):
			return wrongValue(name, "at most %d token ids are allowed", most)
		case err != nil:
			return wrongType(name, "a list of token ids")
		}
		return nil
	}
}

// into reads the members of an object.
func into(to *map[string]json.RawMessage) field {
	return func(name string, raw json.RawMessage) *apiError {
		*to = map[string]json.RawMessage{}
		err := members(raw, func(key string, value json.RawMessage) error {
			if (*to)[key] = value; len(*to) > maxMembers {
				return errTooMany
			}
			return nil
		})
		switch {
		case errors.Is(err, errTooMany):
			return wrongValue(name, "at most %d members are allowed", maxMembers)
		case err != nil:
			return wrongType(name, "an object")
		}
		return nil
	}
}

// object reads an object and passes its members on, except those that are null.
func object(member func(path, key string, raw json.RawMessage) *apiError) field {
	return func(name string, raw json.RawMessage) *apiError {
		given := map[string]json.RawMessage{}
		if e := into(&given)(name, raw); e != nil {
			return e
		}
		for _, key := range slices.Sorted(maps.Keys(given)) {
			if isNull(given[key]) {
				continue
			}
			if err := member(name+"."+key, key, given[key]); err != nil {
				return err
			}
		}
		return nil
	}
}

// ignored accepts a field that does not affect the answer.
func ignored(string, json.RawMessage) *apiError { return nil }

// only accepts a field if it has one of the given JSON values, which ask for the server's
// fixed behavior. Numbers are compared by value.
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
