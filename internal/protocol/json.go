package protocol

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/vmihailenco/msgpack/v5"
)

// FromJSON turns a message that a person or another program wrote in JSON into msgpack.
// Whole numbers become integers. It accepts exactly one JSON value.
func FromJSON(text []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("body is no JSON: %w", err)
	}
	if d.More() {
		return nil, fmt.Errorf("body is no JSON: more than one value")
	}
	v, err := typed(v)
	if err != nil {
		return nil, err
	}
	return msgpack.Marshal(v)
}

// typed replaces the numbers in a decoded JSON value.
func typed(v any) (any, error) {
	var err error
	switch v := v.(type) {
	case json.Number:
		return number(v)
	case []any:
		for i := range v {
			if v[i], err = typed(v[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for k := range v {
			if v[k], err = typed(v[k]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

func number(n json.Number) (any, error) {
	if !strings.ContainsAny(string(n), ".eE") {
		if i, err := n.Int64(); err == nil {
			return i, nil
		}
		var u uint64
		if err := json.Unmarshal([]byte(n), &u); err == nil {
			return u, nil
		}
	}
	f, err := n.Float64()
	if err != nil {
		return nil, fmt.Errorf("number %s does not fit", n)
	}
	return f, nil
}

// ToJSON turns a msgpack message into JSON, for people and other programs. Bytes become
// base64, as in JSON of Go. Maps must have text as keys.
func ToJSON(b []byte) (json.RawMessage, error) {
	var v any
	if len(b) > 0 {
		if err := unmarshal(b, &v); err != nil {
			return nil, err
		}
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("message in JSON: %w", err)
	}
	return text, nil
}
