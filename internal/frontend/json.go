package frontend

import (
	"encoding/json"
	"errors"
	"math"

	"github.com/dynctl/dynctl/internal/jsonscan"
)

// maxDepth bounds the nesting of JSON; encoding/json has the same limit.
const maxDepth = 10_000

var (
	errNullElement = errors.New("a null in a list")
	errTooMany     = errors.New("too many elements")
)

func cursor(raw json.RawMessage) *jsonscan.Cursor {
	return jsonscan.New(raw, jsonscan.Limits{Depth: maxDepth, Values: math.MaxInt})
}

// members calls fn with each member of an object. Nothing is copied: raw stays in memory
// as long as one of the values does.
func members(raw json.RawMessage, fn func(key string, value json.RawMessage) error) error {
	c := cursor(raw)
	err := c.Object(func(quoted []byte) error {
		key, err := jsonscan.Unquote(quoted)
		if err != nil {
			return err
		}
		value, err := c.Raw()
		if err != nil {
			return err
		}
		return fn(key, value)
	})
	if err != nil {
		return err
	}
	return c.End()
}

// elements calls fn with each element of a list. If there are more than most, it returns
// errTooMany. It copies nothing.
func elements(raw json.RawMessage, most int, fn func(i int, element json.RawMessage) error) error {
	c, i := cursor(raw), 0
	err := c.Array(func() error {
		if i >= most {
			return errTooMany
		}
		element, err := c.Raw()
		if err != nil {
			return err
		}
		i++
		return fn(i-1, element)
	})
	if err != nil {
		return err
	}
	return c.End()
}

// rawList returns the elements of a list, or errTooMany if there are more than most.
func rawList(raw json.RawMessage, most int) (list []json.RawMessage, err error) {
	err = elements(raw, most, func(_ int, e json.RawMessage) error {
		list = append(list, e)
		return nil
	})
	return list, err
}

// unmarshalList reads a list of at most the given length. It rejects null elements, which
// encoding/json would read as zero.
func unmarshalList[T any](raw json.RawMessage, v *[]T, most int) error {
	*v = []T{}
	return elements(raw, most, func(_ int, e json.RawMessage) error {
		if isNull(e) {
			return errNullElement
		}
		var one T
		if err := json.Unmarshal(e, &one); err != nil {
			return err
		}
		*v = append(*v, one)
		return nil
	})
}

// unmarshalIDs reads a list of token ids of at most the given length.
func unmarshalIDs(raw json.RawMessage, v *[]uint32, most int) error {
	c := cursor(raw)
	if list, ok := c.Wholes(make([]uint32, 0, min(most, len(raw)/4)), most); ok && c.End() == nil {
		*v = list
		return nil
	}
	*v = []uint32{} // an empty list, one with spaces at odd places, or one with an error
	return elements(raw, most, func(_ int, e json.RawMessage) error {
		id := uint64(0)
		for _, b := range e {
			if b < '0' || b > '9' || id > math.MaxUint32 {
				return errNotID
			}
			id = id*10 + uint64(b-'0')
		}
		if id > math.MaxUint32 {
			return errNotID
		}
		*v = append(*v, uint32(id))
		return nil
	})
}

var errNotID = errors.New("not a token id")
