package schema

import (
	"unicode/utf8"

	"github.com/dynctl/dynctl/internal/grammar/pattern"
	"github.com/dynctl/dynctl/internal/grammar/pda"
	"github.com/dynctl/dynctl/internal/jsonscan"
)

func (l *loader) stringKeyword(n *node, name string, v *value) (err error) {
	switch name {
	case "minLength":
		n.minLength, err = count(v)
	case "maxLength":
		n.maxLength, err = count(v)
	default:
		if v.kind != kindString {
			return refuse(v, "must be a string, not %s", v.kind)
		}
		if name == "pattern" {
			if _, err := pattern.Parse(v.text); err == nil || !l.lax {
				n.pattern = v
			}
		} else if _, known := formats[v.text]; known {
			n.format = v
		} else if !l.lax {
			return refuse(v, "the format %q is not supported", v.text)
		} else {
			return nil
		}
	}
	n.about |= typeString
	return err
}

// text compiles the strings of a node.
func (c *compiler) text(n *node) (pda.Expr, error) {
	at := n.pattern
	if n.format != nil {
		if n.pattern == nil {
			at = n.format
		} else if !c.lax {
			return nil, refuse(n.pattern, "pattern together with format is not supported")
		}
	}
	if at == nil {
		if n.minLength == 0 && n.maxLength < 0 {
			return pda.Ref(c.base.str), nil
		}
		return pda.Seq(pda.Text(`"`), pda.Repeat(anyChar(), n.minLength, n.maxLength), pda.Text(`"`)), nil
	}
	source := at.text
	if at == n.format {
		source = "^(?:" + formats[at.text] + ")$"
	}
	p, err := pattern.Parse(source)
	if err != nil {
		return nil, refuse(at, "%v", err)
	}
	var e pda.Expr
	if least, most := p.Length(); least < n.minLength || n.maxLength >= 0 && (most < 0 || most > n.maxLength) {
		e, err = p.SearchBounded(inString, n.minLength, n.maxLength)
	} else {
		e, err = p.Search(inString)
	}
	if err != nil && c.lax {
		e, err = pda.Repeat(anyChar(), n.minLength, n.maxLength), nil
	}
	if err != nil {
		return nil, refuse(at, "%v", err)
	}
	return pda.Seq(pda.Text(`"`), e, pda.Text(`"`)), nil
}

// inString is one of a set of characters as a JSON string spells it: as itself
// where that is allowed, else with its shortest escape.
func inString(set []pda.Range) pda.Expr {
	set = pda.Sorted(set)
	plain := pda.Set(pda.Intersect(set, keyChars())...)
	alts := []pda.Expr{plain}
	special := func(r rune) {
		for _, x := range set {
			if x.Lo <= r && r <= x.Hi {
				alts = append(alts, pda.Text(jsonscan.Escape(r)))
				return
			}
		}
	}
	for r := range rune(0x20) {
		special(r)
	}
	special('"')
	special('\\')
	return pda.Alt(alts...)
}

// admitsString checks a listed string.
func (n *node) admitsString(v *value) (bool, error) {
	length := utf8.RuneCountInString(v.text)
	if length < n.minLength || n.maxLength >= 0 && length > n.maxLength {
		return false, nil
	}
	if n.format != nil {
		return false, refuse(n.format, "format together with a list of values is not supported")
	}
	if n.pattern == nil {
		return true, nil
	}
	p, err := pattern.Parse(n.pattern.text)
	if err != nil {
		return false, refuse(n.pattern, "%v", err)
	}
	return p.Match(v.text), nil
}
