package prepare

import (
	"encoding/json"
	"maps"
	"math"
	"slices"

	"github.com/dynctl/dynctl/internal/media/picture"
)

// fields reads a JSON object by name. It keeps the first error, and wrong fields read as
// zero values, so a reader checks once at its end. A null counts as absent.
type fields struct {
	file string
	raw  map[string]json.RawMessage
	err  *error
}

func parse(file string, content []byte, err *error) fields {
	f := fields{file: file, err: err}
	if content == nil {
		return f
	}
	if e := json.Unmarshal(content, &f.raw); e != nil {
		f.fail("", ErrConfig, "not a JSON object: "+e.Error())
	} else if f.raw == nil {
		f.fail("", ErrConfig, "not a JSON object")
	}
	maps.DeleteFunc(f.raw, func(_ string, v json.RawMessage) bool { return string(v) == "null" })
	return f
}

func (f fields) fail(field string, kind error, text string) {
	if *f.err == nil {
		*f.err = &FieldError{f.file, field, kind, text}
	}
}

// onlyKnown refuses fields of any other name.
func (f fields) onlyKnown(names ...string) {
	for _, name := range slices.Sorted(maps.Keys(f.raw)) {
		if !slices.Contains(names, name) {
			f.fail(name, ErrUnsupported, "unknown field")
		}
	}
}

func (f fields) has(name string) bool { _, ok := f.raw[name]; return ok }

// read decodes a present field.
func (f fields) read(name string, into any, want string) bool {
	raw, ok := f.raw[name]
	if ok && json.Unmarshal(raw, into) != nil {
		f.fail(name, ErrConfig, "want "+want+", have "+shorten(raw))
		return false
	}
	return ok
}

func shorten(raw []byte) string {
	if len(raw) > 40 {
		return string(raw[:40]) + "…"
	}
	return string(raw)
}

func (f fields) text(name, def string) string {
	f.read(name, &def, "a string")
	return def
}

// object reads a nested object, which is empty if there is none.
func (f fields) object(name string) fields {
	sub := fields{file: f.file + ": " + name, err: f.err}
	f.read(name, &sub.raw, "an object")
	maps.DeleteFunc(sub.raw, func(_ string, v json.RawMessage) bool { return string(v) == "null" })
	return sub
}

func (f fields) boolean(name string) (b bool) {
	f.read(name, &b, "true or false")
	return b
}

// must refuses a switch that is off.
func (f fields) must(name string) {
	if !f.boolean(name) {
		f.fail(name, ErrUnsupported, "false")
	}
}

// maxSide bounds sides of pictures and of what they are cut into, in pixels.
const maxSide = 1 << 14

// count reads a whole number from least to most. An absent field reads as def.
func (f fields) count(name string, def, least, most int) int {
	n := def
	if !f.read(name, &n, "a whole number") {
		return def
	}
	if n < least || n > most {
		f.fail(name, ErrConfig, "the number is out of range")
		return def
	}
	return n
}

// triple reads one number for each color.
func (f fields) triple(name string) (v [3]float64) {
	var list []float64
	if f.read(name, &list, "three numbers") && len(list) != 3 {
		f.fail(name, ErrConfig, "want three numbers")
		return v
	}
	copy(v[:], list)
	return v
}

// filter reads Pillow's number of a filter.
func (f fields) filter(name string) picture.Filter {
	n := f.count(name, 0, 0, 5)
	switch filter := picture.Filter(n); filter {
	case picture.Lanczos, picture.Bilinear, picture.Bicubic:
		return filter
	}
	f.fail(name, ErrUnsupported, "want Lanczos (1), bilinear (2) or bicubic (3)")
	return 0
}

// size is how processors write a size: the fields that are absent are 0.
type size struct {
	Height       int `json:"height"`
	Width        int `json:"width"`
	ShortestEdge int `json:"shortest_edge"`
	LongestEdge  int `json:"longest_edge"`
}

// size reads an object, or a number that stands for the named field or, if that is
// empty, for both sides of a square. Numbers are at most limit.
func (f fields) size(name, number string, limit int) (s size) {
	sub, n := fields{file: f.file + ": " + name, err: f.err}, 0
	switch raw := f.raw[name]; {
	case raw == nil:
		return s
	case json.Unmarshal(raw, &sub.raw) == nil:
		sub.onlyKnown("height", "width", "shortest_edge", "longest_edge")
		for field, into := range map[string]*int{
			"height": &s.Height, "width": &s.Width, "shortest_edge": &s.ShortestEdge, "longest_edge": &s.LongestEdge,
		} {
			*into = sub.count(field, 0, 1, limit)
		}
	case json.Unmarshal(raw, &n) == nil && n >= 1 && n <= limit:
		switch number {
		case "shortest_edge":
			s.ShortestEdge = n
		case "longest_edge":
			s.LongestEdge = n
		default:
			s.Height, s.Width = n, n
		}
	default:
		f.fail(name, ErrConfig, "want a size, have "+shorten(raw))
	}
	return s
}

// positive reads a number above 0.
func (f fields) positive(name string) (v float64) {
	if f.read(name, &v, "a number") && !(v > 0 && v < math.MaxFloat32) {
		f.fail(name, ErrConfig, "want a number above 0")
	}
	return v
}
