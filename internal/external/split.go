package external

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/dynctl/dynctl/internal/jsonscan"
)

// ErrNotSplittable is wrapped by the error of [Splittable].
var ErrNotSplittable = errors.New("the request cannot be split between two servers")

// Splittable reports, by an error, a client's body that no engine can compute in two legs: one
// that asks for several answers, or has several prompts. One server can answer it alone.
func Splittable(body json.RawMessage) error {
	c := jsonscan.New(body, jsonscan.Limits{Depth: 256, Values: 8 << 20})
	why := ""
	err := c.Object(func(key []byte) error {
		name, err := jsonscan.Unquote(key)
		if err != nil {
			return err
		}
		raw, err := c.Raw()
		if err != nil {
			return err
		}
		switch name {
		case "n", "best_of":
			var n float64
			if json.Unmarshal(raw, &n) != nil || n > 1 {
				why = name + " is more than 1"
			}
		case "prompt":
			if manyPrompts(raw) {
				why = "it has several prompts"
			}
		case "use_beam_search":
			if string(raw) == "true" {
				why = "it asks for a beam search"
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrNotSplittable, err)
	case why != "":
		return fmt.Errorf("%w: %s", ErrNotSplittable, why)
	}
	return nil
}

// manyPrompts reports whether a prompt is a list of others than token ids.
func manyPrompts(raw json.RawMessage) bool {
	var list []json.RawMessage
	if len(raw) == 0 || raw[0] != '[' || json.Unmarshal(raw, &list) != nil {
		return false
	}
	return len(list) > 0 && (list[0][0] == '"' || list[0][0] == '[')
}
