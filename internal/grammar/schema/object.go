package schema

import (
	"cmp"
	"slices"
	"unicode/utf8"

	"github.com/dynctl/dynctl/internal/grammar/pattern"
	"github.com/dynctl/dynctl/internal/grammar/pda"
)

// maxMembers bounds the properties of one object.
const maxMembers = 5_000

func objectKeyword(n *node, name string, v *value) error {
	switch name {
	case "properties":
		if v.kind != kindObject {
			return refuse(v, "must be an object, not %s", v.kind)
		}
		if len(v.members) > maxMembers {
			return refuse(v, "more than %d properties", maxMembers)
		}
		for _, m := range v.members {
			n.properties = append(n.properties, property{m.name, []*value{m.v}})
		}
	case "required":
		if v.kind != kindArray {
			return refuse(v, "must be an array, not %s", v.kind)
		}
		if len(v.items) > maxMembers {
			return refuse(v, "more than %d properties", maxMembers)
		}
		for _, item := range v.items {
			if item.kind != kindString {
				return refuse(item, "must be a string")
			}
			if !slices.Contains(n.required, item.text) {
				n.required = append(n.required, item.text)
			}
		}
	default:
		n.additional = v
	}
	return nil
}

// entry is a property as it is generated.
type entry struct {
	name     string
	value    pda.Expr
	required bool
}

// object compiles the objects of a node.
func (c *compiler) object(n *node) (pda.Expr, error) {
	if n.patterns != nil {
		return c.patterned(n)
	}
	required := make(map[string]bool, len(n.required))
	for _, r := range n.required {
		required[r] = true
	}
	var entries []entry
	declared := map[string]bool{}
	for _, p := range n.properties {
		declared[p.name] = true
		if slices.ContainsFunc(p.all, isFalse) {
			if required[p.name] {
				return nil, impossible(p.all[0], "the property is required, but no value matches false")
			}
			continue
		}
		entries = append(entries, entry{p.name, pda.Ref(c.rule(together(p.all))), required[p.name]})
	}
	further := c.further(n)
	for _, r := range n.required {
		if declared[r] {
			continue
		}
		declared[r] = true
		value := further
		if value == nil {
			if n.additional != nil {
				return nil, impossible(n.at, "the property %q is required, but neither declared nor allowed by additionalProperties", r)
			}
			value = pda.Ref(c.base.value)
		}
		entries = append(entries, entry{r, value, true})
	}
	var key pda.Expr
	if further != nil {
		key = otherKey(declared)
	}
	return c.base.members(entries, key, further), nil
}

// patterned compiles objects whose keys match a pattern. Keys that match none are
// not generated. A key that could match two patterns would have to satisfy both, so
// there is only one, and no declared property beside it.
func (c *compiler) patterned(n *node) (pda.Expr, error) {
	if len(n.patterns.members) > 1 || len(n.properties) > 0 || len(n.required) > 0 {
		return nil, refuse(n.patterns, "only a single pattern is supported, without properties and required")
	}
	m := n.patterns.members[0]
	p, err := pattern.Parse(m.name)
	if err != nil {
		return nil, refuse(m.v, "%v", err)
	}
	e, err := p.Search(inString)
	if err != nil {
		return nil, refuse(m.v, "%v", err)
	}
	if isFalse(m.v) {
		return nil, refuse(m.v, "a pattern of forbidden keys is not supported")
	}
	return c.base.members(nil, pda.Seq(pda.Text(`"`), e, pda.Text(`"`)), pda.Ref(c.rule(m.v))), nil
}

// further returns the expression for properties beyond the declared ones; nil forbids
// them.
func (c *compiler) further(n *node) pda.Expr {
	switch {
	case n.additional == nil:
		if len(n.properties) > 0 {
			return nil
		}
		return pda.Ref(c.base.value)
	case isFalse(n.additional):
		return nil
	}
	return pda.Ref(c.rule(n.additional))
}

// blockSize bounds how many members are one rule. From each of them any later one
// can follow if those between are optional, which costs states by the square.
const blockSize = 64

// members is an object with the given entries in their order, then any number of
// further ones with the given form of key; without further there are none.
func (b *base) members(entries []entry, key, further pda.Expr) pda.Expr {
	// What follows after a block, if no entry was written yet and if one was.
	var none, some pda.Expr
	for len(entries) > blockSize {
		n := (len(entries) - 1) / blockSize * blockSize
		last := entries[n:]
		none, some = b.block(last, false, none, some, key, further), b.block(last, true, none, some, key, further)
		none, some = pda.Ref(b.rules.Add(none)), pda.Ref(b.rules.Add(some))
		entries, key, further = entries[:n], nil, nil
	}
	return pda.Seq(pda.Text("{"), b.space(), b.block(entries, false, none, some, key, further))
}

// block is a part of an object up to its end. begun says that an entry was written
// before; none and some are what follows, nil if this is the last block.
func (b *base) block(entries []entry, begun bool, none, some, key, further pda.Expr) pda.Expr {
	g := pda.NewGraph()
	comma := pda.Seq(pda.Text(","), b.space())
	put := func(from, to int, key, value pda.Expr, more bool) {
		e := pda.Seq(key, b.colon(), value)
		if more {
			e = pda.Seq(comma, e)
		}
		g.Edge(from, to, e)
	}
	// Two tracks of states: no entry before, or some.
	before, after := 0, g.State()
	if begun {
		before, after = after, 0
	}
	for _, e := range entries {
		nextBefore, nextAfter := g.State(), g.State()
		key := pda.Text(quote(e.name))
		put(before, nextAfter, key, e.value, false)
		put(after, nextAfter, key, e.value, true)
		if !e.required {
			g.Edge(before, nextBefore, pda.Empty())
			g.Edge(after, nextAfter, pda.Empty())
		}
		before, after = nextBefore, nextAfter
	}
	if further != nil {
		more := g.State()
		put(before, more, key, further, false)
		put(after, more, key, further, true)
		put(more, more, key, further, true)
		g.Edge(more, after, pda.Empty())
	}
	if none == nil {
		none, some = pda.Text("}"), pda.Seq(b.space(), pda.Text("}"))
	}
	end := g.State()
	g.Accept(end)
	g.Edge(before, end, none)
	g.Edge(after, end, some)
	return g
}

// keyChars may stand in further keys. Escapes may not, so that no key is one of the
// declared ones in another spelling.
func keyChars() []pda.Range {
	return []pda.Range{{Lo: 0x20, Hi: '"' - 1}, {Lo: '"' + 1, Hi: '\\' - 1}, {Lo: '\\' + 1, Hi: utf8.MaxRune}}
}

// otherKey is a key in quotes that is none of the given.
func otherKey(declared map[string]bool) pda.Expr {
	g := pda.NewGraph()
	inside, free, end := g.State(), g.State(), g.State()
	g.Edge(0, inside, pda.Text(`"`))
	g.Edge(free, free, pda.Set(keyChars()...))
	g.Edge(free, end, pda.Text(`"`))
	g.Accept(end)
	// A tree of the declared keys; whoever leaves it is free.
	children := map[int]map[rune]int{inside: {}}
	whole := map[int]bool{}
	for name := range declared {
		at := inside
		for _, r := range name {
			next, ok := children[at][r]
			if !ok {
				next = g.State()
				children[at][r] = next
				children[next] = map[rune]int{}
			}
			at = next
		}
		whole[at] = true
	}
	for at, next := range children {
		var taken []rune
		for r, to := range next {
			g.Edge(at, to, only(r))
			taken = append(taken, r)
		}
		g.Edge(at, free, pda.Set(without(keyChars(), taken)...))
		if !whole[at] {
			g.Edge(at, end, pda.Text(`"`))
		}
	}
	return g
}

// only is a character if it may stand in a further key.
func only(r rune) pda.Expr {
	return pda.Set(pda.Intersect(keyChars(), []pda.Range{{Lo: r, Hi: r}})...)
}

// without takes characters out of sorted ranges.
func without(set []pda.Range, taken []rune) []pda.Range {
	slices.SortFunc(taken, func(a, b rune) int { return cmp.Compare(a, b) })
	next := rune(0)
	var rest []pda.Range
	for _, r := range taken {
		if r > next {
			rest = append(rest, pda.Range{Lo: next, Hi: r - 1})
		}
		next = r + 1
	}
	return pda.Intersect(set, append(rest, pda.Range{Lo: next, Hi: utf8.MaxRune}))
}
