package safetensors

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

// walker reads JSON token by token. json.Unmarshal would keep the last of
// duplicate keys, ignore the case of field names and take null for anything.
// The input must have passed checkJSON.
type walker struct {
	dec *json.Decoder
}

func newWalker(raw []byte) *walker {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	return &walker{dec}
}

// object reads an object and calls value for each key, with the decoder standing
// before the key's value. Keys must be unique.
func (w *walker) object(value func(key string) error) error {
	if err := w.delim('{'); err != nil {
		return err
	}
	seen := make(map[string]bool)
	for w.dec.More() {
		key, err := w.str()
		if err != nil {
			return err
		}
		if seen[key] {
			return badf("duplicate name %q", key)
		}
		seen[key] = true
		if err := value(key); err != nil {
			return err
		}
	}
	return w.delim('}')
}

// strings reads an object whose values are all strings.
func (w *walker) strings() (map[string]string, error) {
	out := make(map[string]string)
	err := w.object(func(key string) error {
		value, err := w.str()
		out[key] = value
		return err
	})
	return out, err
}

func (w *walker) str() (string, error) {
	tok, err := w.dec.Token()
	if err != nil {
		return "", badf("%v", err)
	}
	s, ok := tok.(string)
	if !ok {
		return "", badf("want a string, have %v", tok)
	}
	return s, nil
}

// ints reads an array of whole numbers from 0 to 2^63-1 written with digits only.
func (w *walker) ints() ([]int64, error) {
	if err := w.delim('['); err != nil {
		return nil, err
	}
	out := []int64{}
	for w.dec.More() {
		tok, err := w.dec.Token()
		if err != nil {
			return nil, badf("%v", err)
		}
		num, ok := tok.(json.Number)
		if !ok {
			return nil, badf("want a number, have %v", tok)
		}
		if strings.Trim(num.String(), "0123456789") != "" {
			return nil, badf("want a plain whole number, have %s", num)
		}
		n, err := strconv.ParseInt(num.String(), 10, 64)
		if err != nil {
			return nil, badf("number %s does not fit", num)
		}
		out = append(out, n)
	}
	return out, w.delim(']')
}

// skip passes over one value of any kind.
func (w *walker) skip() error {
	var raw json.RawMessage
	if err := w.dec.Decode(&raw); err != nil {
		return badf("%v", err)
	}
	return nil
}

func (w *walker) delim(want json.Delim) error {
	tok, err := w.dec.Token()
	if err != nil {
		return badf("%v", err)
	}
	if tok != want {
		return badf("want %v, have %v", want, tok)
	}
	return nil
}
