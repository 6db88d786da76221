package schema

import (
	"crypto/sha256"
	"strings"

	"github.com/dynctl/dynctl/internal/grammar/pda"
)

// compiler makes rules from schemas. Schemas are compiled from a queue, so that
// references cost no depth of calls, and once for each text, so that equal schemas
// share their rules.
type compiler struct {
	loader
	base   *base
	rules  *pda.Rules
	done   map[[sha256.Size]byte]pda.RuleID // by the text of the schema
	bytes  int                              // of all those texts
	queue  []pending
	alts   int              // alternatives made
	looked map[*value]*node // see look
}

type pending struct {
	id pda.RuleID
	v  *value
}

// maxSchemaText bounds the text of all schemas that became rules, those that arise
// from combining others included.
const maxSchemaText = 64 << 20

// maxAlternatives bounds what several anyOf multiply to.
const maxAlternatives = 5_000

// Compile returns rules for values of a schema. The error is an *Error. Whether any
// finite value matches shows only when the rules are compiled.
func Compile(text []byte, o Options) (*pda.Rules, pda.RuleID, error) {
	root, err := parse(text)
	if err != nil {
		return nil, 0, err
	}
	absolute(root, "")
	rules := &pda.Rules{}
	c := &compiler{loader: loader{root: root, lax: o.Lax}, base: newBase(rules, o), rules: rules, done: map[[sha256.Size]byte]pda.RuleID{}, looked: map[*value]*node{}}
	start := c.rule(root)
	for len(c.queue) > 0 {
		next := c.queue[0]
		c.queue = c.queue[1:]
		if c.bytes > maxSchemaText {
			return nil, 0, refuse(next.v, "combining schemas takes more than %d bytes of text", maxSchemaText)
		}
		e, err := c.schema(next.v)
		if err != nil {
			return nil, 0, err
		}
		rules.Define(next.id, e)
	}
	return rules, start, nil
}

// Object returns rules for any JSON object.
func Object(o Options) (*pda.Rules, pda.RuleID, error) {
	rules := &pda.Rules{}
	return rules, newBase(rules, o).object, nil
}

// rule returns the rule of a schema, which is compiled later unless it was before.
func (c *compiler) rule(v *value) pda.RuleID {
	text := plainText(v)
	c.bytes += len(text)
	key := sha256.Sum256([]byte(text))
	id, ok := c.done[key]
	if !ok {
		id = c.rules.Declare()
		c.done[key] = id
		c.queue = append(c.queue, pending{id, v})
	}
	return id
}

// plainText is a schema without what describes it.
func plainText(v *value) string {
	if v.kind != kindObject {
		return v.String()
	}
	plain := *v
	plain.members = nil
	for _, m := range v.members {
		if !annotations[m.name] && !strings.HasPrefix(m.name, "x-") {
			plain.members = append(plain.members, m)
		}
	}
	return plain.String()
}

// schema compiles one schema.
func (c *compiler) schema(v *value) (pda.Expr, error) {
	// A mere reference needs no reading of its target here.
	if v.kind == kindObject {
		if ref := v.get("$ref"); ref != nil && ref.kind == kindString && plainText(v) == `{"$ref":`+quote(ref.text)+"}" {
			target, err := c.resolve(ref)
			if err != nil {
				return nil, err
			}
			return pda.Ref(c.rule(target)), nil
		}
	}
	n, err := c.load(v)
	if err != nil {
		return nil, err
	}
	return c.node(n)
}

func (c *compiler) node(n *node) (pda.Expr, error) {
	if len(n.groups) > 0 {
		return c.group(n)
	}
	if n.enum != nil {
		return c.enum(n)
	}
	types := n.types()
	if types == allTypes && n.about == 0 {
		return pda.Ref(c.base.value), nil
	}
	var alts []pda.Expr
	for t := typeNull; t <= typeObject; t <<= 1 {
		if types&t == 0 || t == typeInteger && types&typeFraction != 0 {
			continue
		}
		e, err := c.typed(n, t)
		if err != nil {
			return nil, err
		}
		alts = append(alts, e)
	}
	return pda.Alt(alts...), nil
}

func (c *compiler) typed(n *node, t typeSet) (pda.Expr, error) {
	switch t {
	case typeNull:
		return pda.Text("null"), nil
	case typeBool:
		return pda.Alt(pda.Text("true"), pda.Text("false")), nil
	case typeInteger:
		return c.number(n, true)
	case typeFraction:
		return c.number(n, false)
	case typeString:
		return c.text(n)
	case typeArray:
		return c.array(n)
	}
	return c.object(n)
}

// enum compiles the listed values that satisfy the other keywords.
func (c *compiler) enum(n *node) (pda.Expr, error) {
	var alts []pda.Expr
	for _, v := range n.enum {
		ok, err := n.admits(v)
		if err != nil {
			return nil, err
		}
		if ok {
			alts = append(alts, pda.Text(v.String()))
		}
	}
	if len(alts) == 0 {
		return nil, impossible(n.listed, "no listed value satisfies the rest of the schema")
	}
	return pda.Alt(alts...), nil
}
