package call

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/cli/session"
)

// maxBody bounds what is read, in bytes. The request plane takes 32 MiB, and a document is
// hardly smaller as JSON.
const maxBody = 64 << 20

// readBody returns the body that an argument gives, decoded, or nil for none.
func readBody(env session.Env, arg string) (any, error) {
	text := []byte(arg)
	from := "body"
	switch {
	case arg == "":
		return nil, nil
	case arg == "-":
		from = "standard input"
		var err error
		if text, err = readAll(env.Streams.In); err != nil {
			return nil, fmt.Errorf("%s: %w", from, err)
		}
	case strings.HasPrefix(arg, "@"):
		from = arg[1:]
		f, err := os.Open(env.Path(from))
		if err != nil {
			return nil, fmt.Errorf("body: %w", err)
		}
		defer func() { _ = f.Close() }() // it was only read
		if text, err = readAll(f); err != nil {
			return nil, fmt.Errorf("%s: %w", from, err)
		}
	}
	body, err := decodeBody(text)
	if err != nil {
		return nil, fmt.Errorf("%s is not JSON: %w", from, err)
	}
	return body, nil
}

func readAll(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxBody+1))
	if err == nil && len(text) > maxBody {
		err = fmt.Errorf("more than %d bytes", maxBody)
	}
	return text, err
}

// decodeBody reads one JSON document. Integers stay integers, also those that a float cannot
// hold.
func decodeBody(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("it is empty")
		}
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the document")
	}
	return numbers(v)
}

// numbers replaces the numbers of a document by integers, or else by floats.
func numbers(v any) (any, error) {
	var err error
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			if v[k], err = numbers(v[k]); err != nil {
				return nil, err
			}
		}
	case []any:
		for i := range v {
			if v[i], err = numbers(v[i]); err != nil {
				return nil, err
			}
		}
	case json.Number:
		if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return n, nil
		}
		if n, err := strconv.ParseUint(v.String(), 10, 64); err == nil {
			return n, nil
		}
		return v.Float64()
	}
	return v, nil
}
