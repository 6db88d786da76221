package schema

import (
	"math/big"
	"slices"
)

// node is a schema as read, or several in conjunction.
type node struct {
	at       *value
	explicit typeSet // what type allows; all if it is not given
	about    typeSet // the types that the other keywords are about

	properties []property
	required   []string
	additional *value // nil: not given
	patterns   *value // patternProperties, nil: not given

	prefix             []*value
	items              *value // nil: not given
	minItems, maxItems int    // max < 0: none

	minLength, maxLength int // max < 0: none
	pattern, format      *value

	low, high  *bound
	multipleOf *value

	enum   []*value // nil: not given; a const is a list of one
	listed *value   // where enum or const stands

	groups []group
}

// property holds the demands of all schemas on a property, in the order of declaration.
type property struct {
	name string
	all  []*value
}

// group is an anyOf or oneOf.
type group struct {
	at   *value
	one  bool
	alts []*value
}

// bound is a minimum or maximum.
type bound struct {
	at        *value
	d         decimal
	exclusive bool
}

func newNode(at *value) *node {
	return &node{at: at, explicit: allTypes, maxItems: -1, maxLength: -1}
}

// types are the types that are generated.
func (n *node) types() typeSet {
	if n.explicit == allTypes && n.about != 0 && n.enum == nil {
		return n.about
	}
	return n.explicit
}

func (n *node) property(name string) *property {
	for i := range n.properties {
		if n.properties[i].name == name {
			return &n.properties[i]
		}
	}
	return nil
}

// open reports whether keywords leave more to say than the groups do.
func (n *node) onlyGroups() bool {
	return n.explicit == allTypes && n.about == 0 && n.enum == nil
}

// merge adds what o asks. Objects with different properties of which one closes the
// list of properties are beyond it.
func (n *node) merge(o *node) error {
	if err := n.mergeProperties(o); err != nil {
		return err
	}
	if n.explicit&o.explicit == 0 {
		return impossible(o.at, "no type fits both %s and %s", n.at.path(), o.at.path())
	}
	n.explicit &= o.explicit
	n.about |= o.about
	for _, r := range o.required {
		if !slices.Contains(n.required, r) {
			n.required = append(n.required, r)
		}
	}
	if err := n.mergeArrays(o); err != nil {
		return err
	}
	n.minLength = max(n.minLength, o.minLength)
	n.maxLength = least(n.maxLength, o.maxLength)
	if err := one(&n.pattern, o.pattern); err != nil {
		return err
	}
	if err := one(&n.format, o.format); err != nil {
		return err
	}
	if err := one(&n.multipleOf, o.multipleOf); err != nil {
		return err
	}
	n.low = tighter(n.low, o.low, 1)
	n.high = tighter(n.high, o.high, -1)
	n.groups = append(n.groups, o.groups...)
	return n.mergeEnum(o)
}

func (n *node) mergeProperties(o *node) error {
	if n.patterns == nil {
		n.patterns = o.patterns
	} else if o.patterns != nil {
		return refuse(o.patterns, "combined with another patternProperties, at %s", n.patterns.path())
	}
	if n.about&o.about&typeObject != 0 {
		for _, pair := range [...][2]*node{{n, o}, {o, n}} {
			closed, other := pair[0], pair[1]
			if closed.additional == nil || isTrue(closed.additional) {
				continue
			}
			for _, p := range other.properties {
				if closed.property(p.name) == nil {
					return refuse(closed.additional, "combined with a schema that has the property %q, which this one does not declare", p.name)
				}
			}
		}
	}
	for _, p := range o.properties {
		have := n.property(p.name)
		if have == nil {
			n.properties = append(n.properties, property{p.name, slices.Clone(p.all)})
			continue
		}
		for _, v := range p.all {
			if !slices.Contains(have.all, v) {
				have.all = append(have.all, v)
			}
		}
	}
	if n.additional == nil || isTrue(n.additional) {
		if o.additional != nil {
			n.additional = o.additional
		}
		return nil
	}
	if o.additional != nil && !isTrue(o.additional) && o.additional.String() != n.additional.String() {
		return refuse(o.additional, "combined with another additionalProperties, at %s", n.additional.path())
	}
	return nil
}

func (n *node) mergeArrays(o *node) error {
	n.minItems = max(n.minItems, o.minItems)
	n.maxItems = least(n.maxItems, o.maxItems)
	if len(o.prefix) > 0 || len(n.prefix) > 0 {
		if len(o.prefix) > 0 && (len(n.prefix) > 0 || n.items != nil) || o.items != nil && len(o.prefix) == 0 {
			return refuse(o.at, "array items are described by more than one of the combined schemas")
		}
	}
	if len(o.prefix) > 0 {
		n.prefix = o.prefix
	}
	return one(&n.items, o.items)
}

func (n *node) mergeEnum(o *node) error {
	if o.enum == nil {
		return nil
	}
	if n.enum == nil {
		n.enum, n.listed = o.enum, o.listed
		return nil
	}
	both := common(n.enum, o.enum)
	if len(both) == 0 {
		return impossible(o.listed, "no value is in this list and in that of %s", n.listed.path())
	}
	n.enum = both
	return nil
}

// common are the values of a that are in b too.
func common(a, b []*value) []*value {
	in := make(map[string]bool, len(b))
	for _, v := range b {
		in[v.same()] = true
	}
	var both []*value
	for _, v := range a {
		if in[v.same()] {
			both = append(both, v)
		}
	}
	return both
}

// one takes over a keyword that cannot be combined with another value of itself.
func one(have **value, other *value) error {
	if *have != nil && other != nil && (*have).String() != other.String() {
		return refuse(other, "combined with another value, at %s", (*have).path())
	}
	if *have == nil {
		*have = other
	}
	return nil
}

func least(a, b int) int {
	if a < 0 || b >= 0 && b < a {
		return b
	}
	return a
}

// tighter returns the bound that leaves less: the greater with sign 1, the smaller
// with sign -1, of equal ones the exclusive.
func tighter(a, b *bound, sign int) *bound {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	if c := sign * a.d.rat().Cmp(b.d.rat()); c > 0 || c == 0 && a.exclusive {
		return a
	}
	return b
}

func isTrue(v *value) bool { return v != nil && v.kind == kindBool && v.text == "true" }

func isFalse(v *value) bool { return v.kind == kindBool && v.text == "false" }

// admits reports whether a listed value satisfies the keywords about numbers and
// strings.
func (n *node) admits(v *value) (bool, error) {
	if typeOf(v)&n.explicit == 0 {
		return false, nil
	}
	switch v.kind {
	case kindNumber:
		return n.admitsNumber(v)
	case kindString:
		return n.admitsString(v)
	case kindArray:
		if n.about&typeArray != 0 {
			return false, refuse(v, "a listed array together with keywords about arrays is not supported")
		}
	case kindObject:
		if n.about&typeObject != 0 {
			return false, refuse(v, "a listed object together with keywords about objects is not supported")
		}
	}
	return true, nil
}

func (n *node) admitsNumber(v *value) (bool, error) {
	if n.low == nil && n.high == nil && n.multipleOf == nil {
		return true, nil
	}
	d, ok := parseDecimal(v.text)
	if !ok {
		return false, refuse(v, "the number has too many digits to compare")
	}
	x := d.rat()
	if n.low != nil {
		if c := x.Cmp(n.low.d.rat()); c < 0 || c == 0 && n.low.exclusive {
			return false, nil
		}
	}
	if n.high != nil {
		if c := x.Cmp(n.high.d.rat()); c > 0 || c == 0 && n.high.exclusive {
			return false, nil
		}
	}
	if n.multipleOf != nil {
		m, ok := parseDecimal(n.multipleOf.text)
		if !ok {
			return false, refuse(n.multipleOf, "the number has too many digits")
		}
		return new(big.Rat).Quo(x, m.rat()).IsInt(), nil
	}
	return true, nil
}
