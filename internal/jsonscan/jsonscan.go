// Package jsonscan reads JSON in one pass and without copying it, within limits of depth
// and number of values, for texts that come from anywhere. encoding/json takes several
// passes and some hundred bytes for the smallest of values.
//
// A [Cursor] stands before a value. [Cursor.Skip] and [Cursor.Raw] pass over it;
// [Cursor.Object] and [Cursor.Array] go into it, and their callbacks must take the cursor
// past each value. All of them check what they pass.
package jsonscan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

var (
	// ErrSyntax is returned, wrapped, for what is not JSON.
	ErrSyntax = errors.New("not valid JSON")
	// ErrDepth is returned, wrapped, when lists and objects are nested too deep.
	ErrDepth = errors.New("nested too deep")
	// ErrValues is returned, wrapped, when there are too many values.
	ErrValues = errors.New("too many values")
)

// Limits bound what a cursor passes.
type Limits struct {
	Depth  int // of lists and objects inside of each other
	Values int // of all kinds, keys not counted
}

// Cursor is a place in a JSON text. It belongs to one goroutine.
type Cursor struct {
	b      []byte
	at     int
	depth  int
	limits Limits
}

// New stands at the beginning of b, which must not change.
func New(b []byte, l Limits) *Cursor { return &Cursor{b: b, limits: l} }

// Values returns the number of values that may still come.
func (c *Cursor) Values() int { return c.limits.Values }

func (c *Cursor) syntax() error { return fmt.Errorf("%w at byte %d", ErrSyntax, c.at) }

func (c *Cursor) space() {
	for c.at < len(c.b) {
		switch c.b[c.at] {
		case ' ', '\t', '\n', '\r':
			c.at++
		default:
			return
		}
	}
}

// Kind is the first byte of the value, 0 at the end of the text.
func (c *Cursor) Kind() byte {
	if c.space(); c.at < len(c.b) {
		return c.b[c.at]
	}
	return 0
}

// End returns an error unless nothing but white space is left.
func (c *Cursor) End() error {
	if c.Kind() != 0 || c.at < len(c.b) {
		return c.syntax()
	}
	return nil
}

// Raw passes over a value and returns its text.
func (c *Cursor) Raw() ([]byte, error) {
	c.space()
	begin := c.at
	if err := c.Skip(); err != nil {
		return nil, err
	}
	return c.b[begin:c.at:c.at], nil
}

// Skip passes over a value.
func (c *Cursor) Skip() error {
	switch c.Kind() {
	case '{':
		return c.Object(func([]byte) error { return c.Skip() })
	case '[':
		if c.skipWholes() {
			return nil
		}
		return c.Array(c.Skip)
	}
	return c.scalar()
}

// Wholes reads a list of 1 to most whole numbers of 32 bits and appends them to dst, several
// times as fast as by [Cursor.Array]. If anything else comes, also an odd space, it returns
// false and stays where it is.
func (c *Cursor) Wholes(dst []uint32, most int) ([]uint32, bool) {
	end, n := c.wholes(func(v uint64) bool {
		if most--; most < 0 || v > math.MaxUint32 {
			return false
		}
		dst = append(dst, uint32(v))
		return true
	})
	return dst, c.pass(end, n)
}

// skipWholes passes over a list of whole numbers. If anything else comes, it returns false
// and stays where it is.
func (c *Cursor) skipWholes() bool {
	return c.pass(c.wholes(func(uint64) bool { return true }))
}

// pass passes over a list of n values that ends at end, if there is one within the limits.
func (c *Cursor) pass(end, n int) bool {
	if end < 0 || n+1 > c.limits.Values || c.depth+1 > c.limits.Depth {
		return false
	}
	c.at = end
	c.limits.Values -= n + 1
	return true
}

// wholes finds the end of a list of whole numbers and how many there are. It calls number
// with each, until that returns false. The end is negative if there is no such list here.
func (c *Cursor) wholes(number func(v uint64) bool) (end, n int) {
	const longest = 18 // digits that fit
	if c.Kind() != '[' {
		return -1, 0
	}
	b := c.b
	for at := c.at + 1; ; n++ {
		for at < len(b) && (b[at] == ' ' || b[at] == '\n') {
			at++
		}
		begin, v := at, uint64(0)
		for ; at < len(b) && b[at]-'0' <= 9; at++ {
			v = v*10 + uint64(b[at]-'0')
		}
		switch digits := at - begin; {
		case digits == 0, digits > longest, digits > 1 && b[begin] == '0', at == len(b), !number(v):
			return -1, 0
		case b[at] == ']':
			return at + 1, n + 1
		case b[at] != ',':
			return -1, 0
		}
		at++
	}
}

func (c *Cursor) count() error {
	if c.limits.Values--; c.limits.Values < 0 {
		return ErrValues
	}
	return nil
}

// scalar passes over a value that holds no others.
func (c *Cursor) scalar() error {
	if err := c.count(); err != nil {
		return err
	}
	switch k := c.Kind(); {
	case k == '"':
		return c.text()
	case k == '-' || k >= '0' && k <= '9':
		return c.number()
	}
	for _, word := range []string{"null", "true", "false"} {
		if bytes.HasPrefix(c.b[c.at:], []byte(word)) {
			c.at += len(word)
			return nil
		}
	}
	return c.syntax()
}

// Object goes into an object: member is called with the text of each key, quotes
// included, and must pass the value.
func (c *Cursor) Object(member func(key []byte) error) error {
	return c.list('{', '}', func() error {
		if c.Kind() != '"' {
			return c.syntax()
		}
		begin := c.at
		if err := c.text(); err != nil {
			return err
		}
		key := c.b[begin:c.at:c.at]
		if c.Kind() != ':' {
			return c.syntax()
		}
		c.at++
		return member(key)
	})
}

// Array goes into a list: element is called before each value and must pass it.
func (c *Cursor) Array(element func() error) error { return c.list('[', ']', element) }

func (c *Cursor) list(open, end byte, entry func() error) error {
	if c.Kind() != open {
		return c.syntax()
	}
	if err := c.count(); err != nil {
		return err
	}
	if c.depth++; c.depth > c.limits.Depth {
		return fmt.Errorf("%w: more than %d levels", ErrDepth, c.limits.Depth)
	}
	c.at++
	if c.Kind() == end {
		c.at++
		c.depth--
		return nil
	}
	for {
		if err := entry(); err != nil {
			return err
		}
		switch c.Kind() {
		case ',':
			c.at++
		case end:
			c.at++
			c.depth--
			return nil
		default:
			return c.syntax()
		}
	}
}

// String reads a value that is a string.
func (c *Cursor) String() (string, error) {
	if c.Kind() != '"' {
		return "", c.syntax()
	}
	raw, err := c.Raw()
	if err != nil {
		return "", err
	}
	return Unquote(raw)
}

// Unquote returns the text of a string as it stands in JSON. What is not UTF-8 counts as
// U+FFFD.
func Unquote(raw []byte) (string, error) {
	if n := len(raw); n >= 2 && bytes.IndexByte(raw, '\\') < 0 && utf8.Valid(raw) {
		return string(raw[1 : n-1]), nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", fmt.Errorf("%w: %w", ErrSyntax, err)
	}
	return s, nil
}

// text passes over a string.
func (c *Cursor) text() error {
	for c.at++; c.at < len(c.b); c.at++ {
		switch b := c.b[c.at]; {
		case b == '"':
			c.at++
			return nil
		case b < 0x20:
			return c.syntax()
		case b == '\\':
			if c.at++; c.at >= len(c.b) {
				return c.syntax()
			}
			switch c.b[c.at] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				for range 4 {
					if c.at++; c.at >= len(c.b) || !isHex(c.b[c.at]) {
						return c.syntax()
					}
				}
			default:
				return c.syntax()
			}
		}
	}
	return c.syntax()
}

func isHex(b byte) bool {
	return b >= '0' && b <= '9' || b|0x20 >= 'a' && b|0x20 <= 'f'
}

func (c *Cursor) digits() bool {
	begin := c.at
	for c.at < len(c.b) && c.b[c.at] >= '0' && c.b[c.at] <= '9' {
		c.at++
	}
	return c.at > begin
}

// next is the byte at the cursor, 0 at the end of the text.
func (c *Cursor) next() byte {
	if c.at < len(c.b) {
		return c.b[c.at]
	}
	return 0
}

// number passes over a number.
func (c *Cursor) number() error {
	if c.next() == '-' {
		c.at++
	}
	if c.next() == '0' {
		c.at++
	} else if !c.digits() {
		return c.syntax()
	}
	if c.next() == '.' {
		if c.at++; !c.digits() {
			return c.syntax()
		}
	}
	if c.next()|0x20 == 'e' {
		if c.at++; c.next() == '+' || c.next() == '-' {
			c.at++
		}
		if !c.digits() {
			return c.syntax()
		}
	}
	return nil
}
