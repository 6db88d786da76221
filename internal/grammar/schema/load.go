package schema

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Options say how to read a schema.
type Options struct {
	// Lax ignores keywords and formats that are not supported, and takes oneOf for
	// anyOf.
	Lax bool
	// Compact allows no white space between symbols.
	Compact bool
}

// annotations are keywords without effect on what is valid.
var annotations = map[string]bool{
	"title": true, "description": true, "default": true, "examples": true, "example": true, "deprecated": true,
	"readOnly": true, "writeOnly": true, "$comment": true, "$schema": true, "$defs": true, "definitions": true,
	"contentEncoding": true, "contentMediaType": true, "contentSchema": true,
}

// loader reads schemas of one document.
type loader struct {
	root   *value
	lax    bool
	loads  int
	work   int
	inside []*value // references being followed
}

// maxLoads bounds the schemas that are read, those that arise from combining others
// included.
const maxLoads = 20_000

// maxWork bounds what combining schemas costs, in comparisons.
const maxWork = 20_000_000

// merge adds what o asks to n.
func (l *loader) merge(n, o *node) error {
	l.work += 1 + (len(n.properties)+1)*len(o.properties) + (len(n.required)+1)*len(o.required) + len(n.enum) + len(o.enum) + len(n.properties)
	if l.work > maxWork {
		return refuse(o.at, "combining this with other schemas takes too long")
	}
	return n.merge(o)
}

// load reads a schema with everything that it refers to and combines.
func (l *loader) load(v *value) (*node, error) {
	if l.loads++; l.loads > maxLoads {
		return nil, refuse(v, "the schema combines into more than %d schemas", maxLoads)
	}
	n := newNode(v)
	switch {
	case isTrue(v):
		return n, nil
	case isFalse(v):
		return nil, impossible(v, "no value matches false")
	case v.kind != kindObject:
		return nil, refuse(v, "a schema is an object or a boolean, not %s", v.kind)
	}
	for _, m := range v.members {
		if err := l.keyword(n, m.name, m.v); err != nil {
			return nil, err
		}
	}
	if err := l.combine(n, v); err != nil {
		return nil, err
	}
	return n, n.check()
}

// check finds contradictions between two keywords.
func (n *node) check() error {
	if n.maxItems >= 0 && n.minItems > n.maxItems {
		return impossible(n.at, "minItems %d is greater than maxItems %d", n.minItems, n.maxItems)
	}
	if n.maxLength >= 0 && n.minLength > n.maxLength {
		return impossible(n.at, "minLength %d is greater than maxLength %d", n.minLength, n.maxLength)
	}
	if n.low == nil || n.high == nil {
		return nil
	}
	name := func(b *bound) string { return b.at.key + " " + b.at.text }
	c := n.low.d.rat().Cmp(n.high.d.rat())
	if c > 0 {
		return impossible(n.at, "%s is greater than %s", name(n.low), name(n.high))
	}
	if c == 0 && (n.low.exclusive || n.high.exclusive) {
		return impossible(n.at, "no number is left between %s and %s", name(n.low), name(n.high))
	}
	return nil
}

// combine adds what allOf and $ref bring in.
func (l *loader) combine(n *node, v *value) error {
	if ref := v.get("$ref"); ref != nil {
		target, err := l.resolve(ref)
		if err != nil {
			return err
		}
		if slices.Contains(l.inside, target) {
			return refuse(ref, "the reference refers to itself")
		}
		l.inside = append(l.inside, target)
		o, err := l.load(target)
		l.inside = l.inside[:len(l.inside)-1]
		if err != nil {
			return err
		}
		if err := l.merge(n, o); err != nil {
			return err
		}
	}
	all := v.get("allOf")
	if all == nil {
		return nil
	}
	for _, sub := range all.items {
		o, err := l.load(sub)
		if err != nil {
			return err
		}
		if err := l.merge(n, o); err != nil {
			return err
		}
	}
	return nil
}

// keyword reads one member of a schema.
func (l *loader) keyword(n *node, name string, v *value) error {
	if annotations[name] || strings.HasPrefix(name, "x-") {
		return nil
	}
	switch name {
	case "$ref":
		if v.kind != kindString {
			return refuse(v, "must be a string")
		}
		return nil
	case "$id":
		return nil
	case "nullable": // of OpenAPI 3.0
		if v.kind != kindBool {
			return refuse(v, "must be a boolean, not %s", v.kind)
		}
		return nil
	case "type":
		return l.types(n, v)
	case "enum", "const":
		return listed(n, name, v)
	case "allOf":
		_, err := list(v, 1)
		return err
	case "anyOf", "oneOf":
		alts, err := list(v, 1)
		n.groups = append(n.groups, group{v, name == "oneOf" && !l.lax, alts})
		return err
	case "properties", "required", "additionalProperties":
		n.about |= typeObject
		return objectKeyword(n, name, v)
	case "items", "prefixItems", "additionalItems", "minItems", "maxItems":
		n.about |= typeArray
		return arrayKeyword(n, name, v)
	case "minLength", "maxLength", "pattern", "format":
		return l.stringKeyword(n, name, v)
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf":
		n.about |= typeNumber
		return numberKeyword(n, name, v)
	case "uniqueItems":
		if isFalse(v) {
			return nil
		}
	case "minProperties", "minContains":
		if v.text == "0" {
			return nil
		}
	case "patternProperties":
		if v.kind != kindObject {
			return refuse(v, "must be an object, not %s", v.kind)
		}
		if len(v.members) == 0 {
			return nil
		}
		if len(v.members) == 1 || !l.lax {
			n.about |= typeObject
			n.patterns = v
			return nil
		}
	case "dependentRequired", "dependentSchemas":
		if v.kind == kindObject && len(v.members) == 0 {
			return nil
		}
	case "unevaluatedProperties", "unevaluatedItems":
		if isTrue(v) {
			return nil
		}
	}
	if l.lax {
		return nil
	}
	return refuse(v, "the keyword %s is not supported", name)
}

func (l *loader) types(n *node, v *value) error {
	names := []*value{v}
	if v.kind == kindArray {
		names = v.items
	}
	n.explicit = 0
	if isTrue(v.parent.get("nullable")) {
		n.explicit = typeNull
	}
	for _, name := range names {
		t, ok := typeNamed(name.text)
		if name.kind != kindString || !ok {
			return refuse(name, "%s is not a type", name)
		}
		n.explicit |= t
	}
	if len(names) == 0 {
		return impossible(v, "the list of types is empty")
	}
	return nil
}

func listed(n *node, name string, v *value) error {
	values := []*value{v}
	if name == "enum" {
		if v.kind != kindArray {
			return refuse(v, "must be an array, not %s", v.kind)
		}
		if len(v.items) == 0 {
			return impossible(v, "the list of values is empty")
		}
		values = v.items
	}
	return n.mergeEnum(&node{enum: values, listed: v})
}

func list(v *value, shortest int) ([]*value, error) {
	if v.kind != kindArray || len(v.items) < shortest {
		return nil, refuse(v, "must be an array of at least %d schemas", shortest)
	}
	return v.items, nil
}

// maxCount bounds lengths and numbers of items.
const maxCount = 1_000_000

// count reads a number that is not negative.
func count(v *value) (int, error) {
	if v.kind != kindNumber {
		return 0, refuse(v, "must be a number, not %s", v.kind)
	}
	d, ok := parseDecimal(v.text)
	if d.negative || d.frac != "" {
		return 0, refuse(v, "must be an integer that is not negative")
	}
	if !ok {
		return 0, refuse(v, "counts end at %d", maxCount)
	}
	c, err := strconv.Atoi(d.int)
	if err != nil || c > maxCount {
		return 0, refuse(v, "counts end at %d", maxCount)
	}
	return c, nil
}

// resolve finds what a reference points to, within the document.
func (l *loader) resolve(ref *value) (*value, error) {
	pointer, ok := strings.CutPrefix(ref.text, "#")
	if !ok || pointer != "" && pointer[0] != '/' {
		return nil, refuse(ref, "the reference %q is not supported; use a pointer within the schema, such as #/$defs/name", ref.text)
	}
	v := l.root
	if pointer == "" {
		return v, nil
	}
	for _, key := range strings.Split(pointer[1:], "/") {
		if plain, err := url.PathUnescape(key); err == nil {
			key = plain
		}
		key = strings.NewReplacer("~1", "/", "~0", "~").Replace(key)
		var next *value
		if i, err := strconv.Atoi(key); v.kind == kindArray && err == nil && i >= 0 && i < len(v.items) {
			next = v.items[i]
		} else if v.kind == kindObject {
			next = v.get(key)
		}
		if next == nil {
			return nil, refuse(ref, "the reference %q leads nowhere", ref.text)
		}
		v = next
	}
	return v, nil
}
