package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// unmarshal is json.Unmarshal with this package's error.
func unmarshal(raw json.RawMessage, v any) error {
	if len(raw) == 0 {
		return fmt.Errorf("%w: missing value", ErrMalformed)
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return nil
}

// absent reports a missing or null value.
func absent(raw json.RawMessage) bool {
	return len(raw) == 0 || string(raw) == "null"
}

// componentType returns the "type" of a component, or "" for none.
func componentType(raw json.RawMessage, depth int) (string, error) {
	if absent(raw) {
		return "", nil
	}
	if depth > defaultLimits.depth {
		return "", fmt.Errorf("%w: components nested deeper than %d", ErrTooLarge, defaultLimits.depth)
	}
	var head struct{ Type string }
	if err := unmarshal(raw, &head); err != nil {
		return "", err
	}
	if head.Type == "" {
		return "", fmt.Errorf("%w: component without a type", ErrUnknownComponent)
	}
	return head.Type, nil
}

// checkText refuses bytes and escapes that the JSON decoder would silently turn
// into U+FFFD, which could make two tokens equal.
func checkText(b []byte) error {
	if !utf8.Valid(b) {
		for i := 0; i < len(b); {
			r, n := utf8.DecodeRune(b[i:])
			if r == utf8.RuneError && n == 1 {
				return fmt.Errorf("%w: not UTF-8 at byte %d", ErrMalformed, i)
			}
			i += n
		}
	}
	for i := 0; ; {
		j := bytes.IndexByte(b[i:], '\\')
		if j < 0 || i+j+1 >= len(b) {
			return nil
		}
		i += j
		if b[i+1] != 'u' {
			i += 2
			continue
		}
		switch unit := hex4(b, i+2); {
		case unit >= 0xD800 && unit <= 0xDBFF:
			if i+7 < len(b) && b[i+6] == '\\' && b[i+7] == 'u' {
				if low := hex4(b, i+8); low >= 0xDC00 && low <= 0xDFFF {
					i += 12
					continue
				}
			}
			return fmt.Errorf("%w: lone surrogate at byte %d", ErrMalformed, i)
		case unit >= 0xDC00 && unit <= 0xDFFF:
			return fmt.Errorf("%w: lone surrogate at byte %d", ErrMalformed, i)
		}
		i += 2
	}
}

// hex4 reads four hexadecimal digits at b[i], or returns -1.
func hex4(b []byte, i int) int {
	if i+4 > len(b) {
		return -1
	}
	v := 0
	for _, c := range b[i : i+4] {
		switch {
		case c >= '0' && c <= '9':
			v = v<<4 | int(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			v = v<<4 | int(c|0x20-'a'+10)
		default:
			return -1
		}
	}
	return v
}
