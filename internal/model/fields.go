package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/jsonscan"
)

// fields reads a JSON object of a configuration file by name. Errors accumulate in err,
// and wrong fields read as zero values, so a reader checks once at its end. A null counts
// as absent, as it does for the libraries that write these files.
type fields struct {
	path string // "config.json" or "config.json: rope_scaling"
	raw  map[string]json.RawMessage
	err  *error
	// nested: it is an object in the file.
	nested bool
}

// parseFields reads the object in a file.
func parseFields(path string, content []byte) (fields, error) {
	f := fields{path: path, err: new(error)}
	if err := json.Unmarshal(jsonscan.FromPython(content), &f.raw); err != nil {
		return f, fmt.Errorf("read %s: %w: not a JSON object: %w", path, ErrConfig, err)
	}
	if f.raw == nil {
		return f, fmt.Errorf("read %s: %w: not a JSON object", path, ErrConfig)
	}
	return f, nil
}

// fail adds an error, which the reader checks later.
func (f fields) fail(kind error, name, format string, args ...any) {
	err := fmt.Errorf("read %s: %w: %s: %s", f.path, kind, name, fmt.Sprintf(format, args...))
	switch found := (*f.err).(type) { //nolint:errorlint // nothing wraps it here
	case nil:
		*f.err = failures{err}
	case failures:
		if !slices.ContainsFunc(found, func(e error) bool { return e.Error() == err.Error() }) {
			*f.err = append(found, err)
		}
	}
}

// failures holds the errors of one file. As an error it is the first of them; the
// function each returns all.
type failures []error

func (f failures) Error() string { return f[0].Error() }

func (f failures) Unwrap() error { return f[0] }

// each returns the single errors in err.
func each(err error) []error {
	if list := failures(nil); errors.As(err, &list) {
		return list
	}
	return []error{err}
}

func (f fields) has(name string) bool {
	raw, ok := f.raw[name]
	return ok && string(raw) != "null"
}

// decode reads a present field. It returns false if the field is absent or wrong.
func (f fields) decode(name string, into any, want string) bool {
	if !f.has(name) {
		return false
	}
	if err := json.Unmarshal(f.raw[name], into); err != nil {
		f.fail(ErrConfig, name, "want %s, have %s", want, shorten(f.raw[name]))
		return false
	}
	return true
}

// size reads a whole number between 1 and limit. If the field is absent it returns def,
// or fails if def is 0.
func (f fields) size(name string, def, limit int) int {
	if !f.has(name) {
		if def == 0 {
			f.fail(ErrConfig, name, "missing")
		}
		return def
	}
	var n int
	if f.decode(name, &n, "a whole number") && (n < 1 || n > limit) {
		f.fail(ErrConfig, name, "%d is not between 1 and %d", n, limit)
	}
	return n
}

// count does what size does, for numbers that may be 0; def may be 0, too.
func (f fields) count(name string, def, limit int) int {
	n := def
	if f.decode(name, &n, "a whole number") && (n < 0 || n > limit) {
		f.fail(ErrConfig, name, "%d is not between 0 and %d", n, limit)
	}
	return n
}

// number reads a finite number; def if absent.
func (f fields) number(name string, def float64) float64 {
	n := def
	f.decode(name, &n, "a number")
	return n
}

// positive reads a number above zero. The field is required unless def is above zero.
func (f fields) positive(name string, def float64) float64 {
	if !f.has(name) && def <= 0 {
		f.fail(ErrConfig, name, "missing")
		return def
	}
	n := f.number(name, def)
	if !(n > 0) || math.IsInf(n, 0) {
		f.fail(ErrConfig, name, "%v is not above 0", n)
	}
	return n
}

func (f fields) boolean(name string, def bool) bool {
	b := def
	f.decode(name, &b, "true or false")
	return b
}

func (f fields) text(name, def string) string {
	s := def
	f.decode(name, &s, "a string")
	return s
}

func (f fields) texts(name string) []string {
	var s []string
	f.decode(name, &s, "a list of strings")
	return s
}

// ids reads a token id or a list of them.
func (f fields) ids(name string) []uint32 {
	if !f.has(name) {
		return nil
	}
	var list []uint32
	if json.Unmarshal(f.raw[name], &list) == nil {
		slices.Sort(list)
		return slices.Compact(list)
	}
	var one uint32
	if f.decode(name, &one, "a token id or a list of them") {
		return []uint32{one}
	}
	return nil
}

// window reads a number of positions. Here null differs from an absent field, which means
// def: null means no window, as 0 does.
func (f fields) window(name string, def int) int {
	if _, there := f.raw[name]; there && !f.has(name) {
		return 0
	}
	return f.count(name, def, maxContext)
}

// limit reads a positive number; null turns the limit off, as 0 does.
func (f fields) limit(name string, def float64) float64 {
	if _, there := f.raw[name]; there && !f.has(name) || !there && def == 0 {
		return 0
	}
	return f.positive(name, def)
}

// layers reads a list of layer numbers.
func (f fields) layers(name string) []int {
	var list []int
	f.decode(name, &list, "a list of layers")
	return list
}

// factors reads a list of n numbers above zero.
func (f fields) factors(name string, n int) []float64 {
	var list []float64
	if !f.has(name) {
		f.fail(ErrConfig, name, "missing")
	}
	if f.decode(name, &list, "a list of numbers") && len(list) != n {
		f.fail(ErrConfig, name, "%d numbers, want one for each of %d pairs", len(list), n)
	}
	for _, v := range list {
		if !(v > 0) {
			f.fail(ErrConfig, name, "%v is not above 0", v)
		}
	}
	return list
}

// refuse fails if a switch is on.
func (f fields) refuse(name, why string) {
	if f.boolean(name, false) {
		f.fail(ErrUnsupported, name, "true: %s", why)
	}
}

// names returns the names of all fields, sorted.
func (f fields) names() []string { return slices.Sorted(maps.Keys(f.raw)) }

// object reads a nested object, which shares the errors.
func (f fields) object(name string) (fields, bool) {
	sub := fields{path: f.path + ": " + name, err: f.err, nested: true}
	ok := f.decode(name, &sub.raw, "an object")
	return sub, ok
}

// descend returns the nested object, if there is one. Fields that it lacks are taken from
// the outer object.
func (f fields) descend(name string) fields {
	sub, ok := f.object(name)
	if !ok {
		return f
	}
	for _, outer := range []string{"dtype", "torch_dtype", "tie_word_embeddings", "quantization_config"} {
		if f.has(outer) && !sub.has(outer) {
			sub.raw[outer] = f.raw[outer]
		}
	}
	return sub
}

func shorten(raw []byte) string {
	if len(raw) > 40 {
		return strings.ToValidUTF8(string(raw[:40]), "") + "…"
	}
	return string(raw)
}
