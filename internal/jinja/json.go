package jinja

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/jsonscan"
)

// maxJSONDepth bounds the nesting of request data.
const maxJSONDepth = 500

// FromJSON turns JSON into a template value. Objects become [*Dict] with their
// keys in order (of a repeated key the last value counts, at the first place),
// numbers without a fraction or exponent become integers.
func FromJSON(raw json.RawMessage) (Value, error) {
	most := math.MaxInt
	return FromJSONWithin(raw, &most)
}

// FromJSONWithin is FromJSON for at most so many values, which it counts down. The error
// wraps [jsonscan.ErrValues] if there are more.
func FromJSONWithin(raw json.RawMessage, values *int) (Value, error) {
	c := jsonscan.New(raw, jsonscan.Limits{Depth: maxJSONDepth, Values: *values})
	v, err := decodeJSON(c)
	if err == nil {
		err = c.End()
	}
	if err != nil {
		return nil, fmt.Errorf("decode json: %w", err)
	}
	*values = c.Values()
	return v, nil
}

func decodeJSON(c *jsonscan.Cursor) (Value, error) {
	switch c.Kind() {
	case '"':
		return c.String()
	case '[':
		l := &List{}
		err := c.Array(func() error {
			v, err := decodeJSON(c)
			l.items = append(l.items, v)
			return err
		})
		return l, err
	case '{':
		o := &Dict{}
		err := c.Object(func(key []byte) error {
			name, err := jsonscan.Unquote(key)
			if err != nil {
				return err
			}
			v, err := decodeJSON(c)
			o.Set(name, v)
			return err
		})
		return o, err
	}
	raw, err := c.Raw()
	if err != nil {
		return nil, err
	}
	switch string(raw) {
	case "null":
		return nil, nil
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return parseNumber(string(raw))
}

func parseNumber(s string) (Value, error) {
	if !strings.ContainsAny(s, ".eE") {
		if i, err := strconv.ParseInt(s, 10, 64); err == nil {
			return i, nil
		}
		if len(s) > maxDigits {
			return nil, fmt.Errorf("integer of %d digits", len(s))
		}
		if v, ok := new(big.Int).SetString(s, 10); ok {
			return normInt(v), nil
		}
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !math.IsInf(f, 0) {
		return nil, err
	}
	return f, nil
}
