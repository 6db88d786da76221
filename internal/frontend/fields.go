package frontend

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

// field reads one request field. A JSON null is not passed on: it means absent.
type field func(name string, raw json.RawMessage) *apiError

// fields are all fields that an endpoint knows, by name.
type fields map[string]field

// readBody reads a request body within limit.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, *apiError) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		e := invalid("", "The request body is larger than %d bytes.", limit)
		e.status = http.StatusRequestEntityTooLarge
		return nil, e
	case err != nil:
		return nil, invalid("", "The request body could not be read: %v", err)
	}
	return body, nil
}

// read decodes a JSON object field by field, so that every complaint can name its
// field. A field that the endpoint does not know is an error.
func (f fields) read(body []byte) *apiError {
	if !utf8.Valid(body) {
		return invalid("", "The request body is not valid UTF-8.")
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return invalid("", "The request body is empty; a JSON object is expected.")
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(body, &object); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return invalid("", "The request body is not valid JSON: %s (byte %d).", syntax.Error(), syntax.Offset)
		}
		return invalid("", "The request body must be a JSON object.")
	}
	var names []string
	for name := range object {
		names = append(names, name)
	}
	slices.Sort(names) // the same request always gets the same answer
	for _, name := range names {
		read, known := f[name]
		if !known {
			return invalid(name, "Unknown parameter: '%s'.", name).withCode("unknown_parameter")
		}
		if string(object[name]) == "null" {
			continue
		}
		if err := read(name, object[name]); err != nil {
			return err
		}
	}
	return nil
}

// The constructors below return fields that fill a variable.

func text(v *string) field {
	return func(name string, raw json.RawMessage) *apiError {
		if json.Unmarshal(raw, v) != nil {
			return invalid(name, "Invalid type for '%s': expected a string.", name)
		}
		return nil
	}
}

func flag(v *bool) field {
	return func(name string, raw json.RawMessage) *apiError {
		if json.Unmarshal(raw, v) != nil {
			return invalid(name, "Invalid type for '%s': expected a boolean.", name)
		}
		return nil
	}
}

// number reads a finite number between lo and hi.
func number(v **float64, lo, hi float64) field {
	return func(name string, raw json.RawMessage) *apiError {
		var x float64
		if json.Unmarshal(raw, &x) != nil || math.IsInf(x, 0) {
			return invalid(name, "Invalid type for '%s': expected a number.", name)
		}
		if x < lo || x > hi {
			return invalid(name, "Invalid value for '%s': %v is not between %v and %v.", name, x, lo, hi)
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
			return invalid(name, "Invalid type for '%s': expected an integer.", name)
		}
		if x < lo || x > hi {
			return invalid(name, "Invalid value for '%s': %d is not between %d and %d.", name, x, lo, hi)
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
		} else if json.Unmarshal(raw, v) != nil {
			return invalid(name, "Invalid type for '%s': expected a string or a list of strings.", name)
		}
		if len(*v) > most {
			return invalid(name, "Invalid value for '%s': %d strings, at most %d are allowed.", name, len(*v), most)
		}
		for _, s := range *v {
			if s == "" {
				return invalid(name, "Invalid value for '%s': an empty string would stop everything.", name)
			}
		}
		return nil
	}
}

// tokenIDs reads a list of token ids.
func tokenIDs(v *[]uint32) field {
	return func(name string, raw json.RawMessage) *apiError {
		if json.Unmarshal(raw, v) != nil {
			return invalid(name, "Invalid type for '%s': expected a list of token ids.", name)
		}
		return nil
	}
}

func rawField(v *json.RawMessage) field {
	return func(_ string, raw json.RawMessage) *apiError {
		*v = raw
		return nil
	}
}

// ignored accepts a field that says nothing about the answer.
func ignored(string, json.RawMessage) *apiError { return nil }

// only accepts a field as long as it has one of the given JSON values, those that
// ask for what this server does anyway.
func only(values ...string) field {
	return func(name string, raw json.RawMessage) *apiError {
		var compact bytes.Buffer
		if json.Compact(&compact, raw) == nil && slices.Contains(values, compact.String()) {
			return nil
		}
		if len(values) == 0 {
			return unsupported(name)
		}
		e := unsupported(name)
		e.Message = fmt.Sprintf("Unsupported value for '%s': this server supports %s.", name, strings.Join(values, ", "))
		return e
	}
}
