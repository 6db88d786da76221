package schema

import (
	"errors"
	"slices"

	"github.com/dynctl/dynctl/internal/grammar/pda"
)

// group compiles the first anyOf or oneOf of a node, each alternative combined with
// all else that the node asks.
func (c *compiler) group(n *node) (pda.Expr, error) {
	g := n.groups[0]
	rest := n.clone()
	rest.groups = rest.groups[1:]
	alone := len(rest.groups) == 0 && rest.onlyGroups()
	if alone && !g.one {
		return c.refs(g.alts), nil
	}
	var nodes []*node
	var last error // why an alternative was left out
	for _, alt := range g.alts {
		o, err := c.load(alt)
		m := rest.clone()
		if err == nil {
			err = c.merge(m, o)
		}
		if err == nil {
			err = m.check()
		}
		if left, err := leaveOut(err); err != nil {
			return nil, err
		} else if left != nil {
			last = left
			continue
		}
		nodes = append(nodes, m)
	}
	if g.one {
		if err := c.exclusive(g, nodes); err != nil {
			return nil, err
		}
		if alone && len(nodes) == len(g.alts) {
			return c.refs(g.alts), nil
		}
	}
	var alts []pda.Expr
	for _, m := range nodes {
		if c.alts++; c.alts > maxAlternatives {
			return nil, refuse(g.at, "the alternatives multiply to more than %d", maxAlternatives)
		}
		e, err := c.node(m)
		if left, err := leaveOut(err); err != nil {
			return nil, err
		} else if left != nil {
			last = left
			continue
		}
		alts = append(alts, e)
	}
	if len(alts) == 0 {
		return nil, impossible(g.at, "no alternative can be satisfied: %v", last)
	}
	return pda.Alt(alts...), nil
}

func (c *compiler) refs(alts []*value) pda.Expr {
	refs := make([]pda.Expr, len(alts))
	for i, v := range alts {
		refs[i] = pda.Ref(c.rule(v))
	}
	return pda.Alt(refs...)
}

// leaveOut separates an alternative that cannot be satisfied from other errors.
func leaveOut(err error) (impossible, other error) {
	var e *Error
	if errors.As(err, &e) && e.impossible {
		return e, nil
	}
	return nil, err
}

func (n *node) clone() *node {
	c := *n
	c.properties = slices.Clone(n.properties)
	for i := range c.properties {
		c.properties[i].all = slices.Clone(c.properties[i].all)
	}
	c.required = slices.Clone(n.required)
	c.groups = slices.Clone(n.groups)
	return &c
}

// exclusive refuses a oneOf unless it is clear that what is generated for one
// alternative is not valid for another.
func (c *compiler) exclusive(g group, nodes []*node) error {
	const most = 200 // pairs grow with the square
	if len(nodes) > most {
		return refuse(g.at, "more than %d alternatives; use anyOf", most)
	}
	for i, a := range nodes {
		for j, b := range nodes {
			if i != j && !c.excludes(a, b) {
				return refuse(g.at, "%s may also match what is generated for %s; use anyOf, or give them different types or a required property with different constants", b.at.path(), a.at.path())
			}
		}
	}
	return nil
}

// excludes reports whether it is clear that no value generated for a is valid for b.
func (c *compiler) excludes(a, b *node) bool {
	if a.enum != nil && b.enum != nil {
		return len(common(a.enum, b.enum)) == 0
	}
	types := a.types()
	if len(a.groups) > 0 {
		types = a.explicit
	}
	if a.enum != nil {
		types = 0
		for _, v := range a.enum {
			types |= typeOf(v)
		}
	}
	types &= b.explicit
	switch types {
	case 0:
		return true
	case typeObject:
		return a.enum == nil && c.excludesObject(a, b)
	}
	return false
}

func (c *compiler) excludesObject(a, b *node) bool {
	for _, name := range a.required {
		p, q := a.property(name), b.property(name)
		if q == nil {
			if b.additional != nil && isFalse(b.additional) && len(b.groups) == 0 && b.patterns == nil {
				return true
			}
			continue
		}
		if p == nil {
			continue
		}
		x, y := c.look(p.all), c.look(q.all)
		if x == nil || y == nil {
			continue
		}
		if x.enum != nil && y.enum != nil && c.excludes(x, y) || x.explicit&y.explicit == 0 {
			return true
		}
	}
	closed := len(a.groups) == 0 && a.patterns == nil && (a.additional == nil && len(a.properties) > 0 || a.additional != nil && isFalse(a.additional))
	for _, name := range b.required {
		if closed && a.property(name) == nil && !slices.Contains(a.required, name) {
			return true
		}
	}
	return false
}

// look loads the schema of a property, nil if that fails.
func (c *compiler) look(all []*value) *node {
	if len(all) > 1 {
		n, _ := c.load(together(all))
		return n
	}
	n, ok := c.looked[all[0]]
	if !ok {
		n, _ = c.load(all[0])
		c.looked[all[0]] = n
	}
	return n
}

// together is a schema that asks all that several ask.
func together(all []*value) *value {
	if len(all) == 1 {
		return all[0]
	}
	list := &value{kind: kindArray, items: all, parent: all[0].parent, key: all[0].key}
	return &value{kind: kindObject, members: []member{{"allOf", list}}, parent: all[0].parent, key: all[0].key}
}
