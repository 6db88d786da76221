package schema

import "github.com/dynctl/dynctl/internal/grammar/pda"

func arrayKeyword(n *node, name string, v *value) (err error) {
	switch name {
	case "items":
		if v.kind == kindArray { // a tuple, as drafts before 2020-12 spell it
			n.prefix, err = list(v, 1)
			n.items = v.parent.get("additionalItems")
			return err
		}
		n.items = v
	case "additionalItems": // has a meaning only beside a tuple
	case "prefixItems":
		n.prefix, err = list(v, 1)
	case "minItems":
		n.minItems, err = count(v)
	case "maxItems":
		n.maxItems, err = count(v)
	}
	return err
}

// array compiles the arrays of a node.
func (c *compiler) array(n *node) (pda.Expr, error) {
	low, high := n.minItems, n.maxItems
	prefix := n.prefix
	rest := pda.Ref(c.base.value)
	switch {
	case n.items != nil && isFalse(n.items), n.items == nil && len(prefix) > 0 && low <= len(prefix):
		high = least(high, len(prefix))
		rest = nil
	case n.items != nil:
		rest = pda.Ref(c.rule(n.items))
	}
	if high >= 0 && low > high {
		return nil, impossible(n.at, "minItems is %d, but at most %d items are allowed", low, high)
	}
	if high >= 0 && len(prefix) > high {
		prefix = prefix[:high]
	}
	comma := pda.Seq(pda.Text(","), c.base.space())
	g := pda.NewGraph()
	end := g.State()
	g.Accept(end)
	at := g.State()
	g.Edge(0, at, pda.Seq(pda.Text("["), c.base.space()))
	leave := func(from, items int) {
		switch {
		case items < low:
		case items == 0:
			g.Edge(from, end, pda.Text("]"))
		default:
			g.Edge(from, end, pda.Seq(c.base.space(), pda.Text("]")))
		}
	}
	items := 0
	for _, p := range prefix {
		leave(at, items)
		next := g.State()
		e := pda.Ref(c.rule(p))
		if items > 0 {
			e = pda.Seq(comma, e)
		}
		g.Edge(at, next, e)
		at = next
		items++
	}
	if rest != nil && high != items {
		if items == 0 { // the first has no comma before it
			leave(at, 0)
			next := g.State()
			g.Edge(at, next, rest)
			at = next
			items++
		}
		most := -1
		if high >= 0 {
			most = high - items
		}
		next := g.State()
		g.Edge(at, next, pda.Repeat(pda.Seq(comma, rest), max(low-items, 0), most))
		at = next
		items = max(low, items)
	}
	leave(at, items)
	return g, nil
}
