package gguf

import (
	"errors"
	"fmt"
	"math"
)

// valueType is the type of a key's value, with the number that files use.
type valueType uint32

const (
	typeU8 valueType = iota
	typeI8
	typeU16
	typeI16
	typeU32
	typeI32
	typeF32
	typeBool
	typeString
	typeArray
	typeU64
	typeI64
	typeF64
)

// size is the number of bytes of a value of fixed size, 0 for the others.
func (t valueType) size() int64 {
	switch t {
	case typeU8, typeI8, typeBool:
		return 1
	case typeU16, typeI16:
		return 2
	case typeU32, typeI32, typeF32:
		return 4
	case typeU64, typeI64, typeF64:
		return 8
	}
	return 0
}

// Keys are the key-value pairs of a file. A value is a uint64 or int64 for whole
// numbers of any width, a float32, float64, bool or string, or a slice of one of
// these for an array.
type Keys map[string]any

// ErrKey is returned when a key is missing or does not hold what it must.
var ErrKey = errors.New("invalid GGUF key")

// Has reports whether the file has a key.
func (k Keys) Has(name string) bool {
	_, ok := k[name]
	return ok
}

// Int reads a whole number from 0 to 2^31-1; ok is false when the key is absent.
func (k Keys) Int(name string) (n int, ok bool, err error) {
	v, ok := k[name]
	if !ok {
		return 0, false, nil
	}
	if n, fits := whole(v); fits {
		return n, true, nil
	}
	return 0, false, keyf(name, "%s is not a whole number from 0 to %d", describe(v), math.MaxInt32)
}

// Ints reads an array of such numbers, or a single one as an array of one.
func (k Keys) Ints(name string) (list []int, ok bool, err error) {
	v, ok := k[name]
	if !ok {
		return nil, false, nil
	}
	add := func(v any) bool {
		n, fits := whole(v)
		list = append(list, n)
		return fits
	}
	good := true
	switch v := v.(type) {
	case []uint64:
		for _, n := range v {
			good = good && add(n)
		}
	case []int64:
		for _, n := range v {
			good = good && add(n)
		}
	default:
		good = add(v)
	}
	if !good {
		return nil, false, keyf(name, "%s does not hold whole numbers from 0 to %d", describe(v), math.MaxInt32)
	}
	return list, true, nil
}

func whole(v any) (int, bool) {
	switch v := v.(type) {
	case uint64:
		return int(min(v, math.MaxInt32)), v <= math.MaxInt32
	case int64:
		return int(min(v, math.MaxInt32)), v >= 0 && v <= math.MaxInt32
	}
	return 0, false
}

// Float reads a number, whole ones included.
func (k Keys) Float(name string) (f float64, ok bool, err error) {
	v, ok := k[name]
	if !ok {
		return 0, false, nil
	}
	switch v := v.(type) {
	case float32:
		return float64(v), true, nil
	case float64:
		return v, true, nil
	case uint64:
		return float64(v), true, nil
	case int64:
		return float64(v), true, nil
	}
	return 0, false, keyf(name, "%s is not a number", describe(v))
}

// Bool reads true or false.
func (k Keys) Bool(name string) (b, ok bool, err error) { return read[bool](k, name, "true or false") }

// Text reads a string.
func (k Keys) Text(name string) (s string, ok bool, err error) {
	return read[string](k, name, "a string")
}

// Texts reads an array of strings.
func (k Keys) Texts(name string) (list []string, ok bool, err error) {
	return read[[]string](k, name, "an array of strings")
}

// Floats reads an array of float32.
func (k Keys) Floats(name string) (list []float32, ok bool, err error) {
	return read[[]float32](k, name, "an array of float32")
}

func read[T any](k Keys, name, want string) (value T, ok bool, err error) {
	v, ok := k[name]
	if !ok {
		return value, false, nil
	}
	if value, ok = v.(T); !ok {
		return value, false, keyf(name, "%s is not %s", describe(v), want)
	}
	return value, true, nil
}

// describe names a value in an error.
func describe(v any) string {
	switch v := v.(type) {
	case string:
		if r := []rune(v[:min(len(v), 160)]); len(r) > 40 {
			return fmt.Sprintf("%q…", string(r[:40]))
		}
		return fmt.Sprintf("%q", v)
	case uint64, int64, float32, float64, bool:
		return fmt.Sprint(v)
	}
	return fmt.Sprintf("an array (%T)", v)
}

func keyf(name, format string, args ...any) error {
	return fmt.Errorf("%w %s: "+format, append([]any{ErrKey, name}, args...)...)
}
