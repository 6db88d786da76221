package schema

import (
	"unicode/utf8"

	"github.com/dynctl/dynctl/internal/grammar/pda"
)

// base holds the rules of JSON without a schema.
type base struct {
	rules   *pda.Rules
	compact bool
	blank   pda.RuleID // white space between symbols
	value   pda.RuleID
	object  pda.RuleID
	str     pda.RuleID
}

// maxIndent bounds the white space after a line break.
const maxIndent = 64

func newBase(rules *pda.Rules, o Options) *base {
	b := &base{rules: rules, compact: o.Compact}
	indent := pda.Repeat(pda.Set(pda.Range{Lo: ' ', Hi: ' '}, pda.Range{Lo: '\t', Hi: '\t'}), 0, maxIndent)
	b.blank = rules.Add(pda.Optional(pda.Alt(pda.Text(" "), pda.Seq(pda.Text("\n"), indent))))
	b.value, b.object = rules.Declare(), rules.Declare()
	b.str = rules.Add(pda.Seq(pda.Text(`"`), pda.Repeat(anyChar(), 0, -1), pda.Text(`"`)))
	rules.Define(b.object, b.members(nil, otherKey(nil), pda.Ref(b.value)))
	item := pda.Ref(b.value)
	list := pda.Seq(item, pda.Repeat(pda.Seq(pda.Text(","), b.space(), item), 0, -1), b.space())
	array := rules.Add(pda.Seq(pda.Text("["), pda.Alt(pda.Empty(), pda.Seq(b.space(), list)), pda.Text("]")))
	rules.Define(b.value, pda.Alt(
		pda.Ref(b.object), pda.Ref(array), pda.Ref(b.str), pda.Ref(rules.Add(anyNumber(false))),
		pda.Text("true"), pda.Text("false"), pda.Text("null"),
	))
	return b
}

func (b *base) space() pda.Expr {
	if b.compact {
		return pda.Empty()
	}
	return pda.Ref(b.blank)
}

func (b *base) colon() pda.Expr {
	if b.compact {
		return pda.Text(":")
	}
	return pda.Seq(pda.Text(":"), pda.Optional(pda.Text(" ")))
}

func char(lo, hi rune) pda.Expr { return pda.Set(pda.Range{Lo: lo, Hi: hi}) }

func digits(least, most int) pda.Expr { return pda.Repeat(char('0', '9'), least, most) }

// anyChar is one character of a string in any spelling. A character beyond U+FFFF
// can be two \u escapes; half of such a pair is no character.
func anyChar() pda.Expr {
	hex := pda.Set(pda.Range{Lo: '0', Hi: '9'}, pda.Range{Lo: 'a', Hi: 'f'}, pda.Range{Lo: 'A', Hi: 'F'})
	d := pda.Set(pda.Range{Lo: 'd', Hi: 'd'}, pda.Range{Lo: 'D', Hi: 'D'})
	single := pda.Alt(
		pda.Seq(pda.Set(pda.Range{Lo: '0', Hi: '9'}, pda.Range{Lo: 'a', Hi: 'c'}, pda.Range{Lo: 'A', Hi: 'C'},
			pda.Range{Lo: 'e', Hi: 'f'}, pda.Range{Lo: 'E', Hi: 'F'}), hex, hex, hex),
		pda.Seq(d, char('0', '7'), hex, hex),
	)
	high := pda.Seq(d, pda.Set(pda.Range{Lo: '8', Hi: '9'}, pda.Range{Lo: 'a', Hi: 'b'}, pda.Range{Lo: 'A', Hi: 'B'}), hex, hex)
	low := pda.Seq(d, pda.Set(pda.Range{Lo: 'c', Hi: 'f'}, pda.Range{Lo: 'C', Hi: 'F'}), hex, hex)
	short := pda.Alt(pda.Text(`"`), pda.Text(`\`), pda.Text("/"), pda.Text("b"), pda.Text("f"), pda.Text("n"), pda.Text("r"), pda.Text("t"))
	return pda.Alt(
		pda.Set(pda.Range{Lo: 0x20, Hi: '"' - 1}, pda.Range{Lo: '"' + 1, Hi: '\\' - 1}, pda.Range{Lo: '\\' + 1, Hi: utf8.MaxRune}),
		pda.Seq(pda.Text(`\`), pda.Alt(short, pda.Seq(pda.Text("u"), pda.Alt(single, pda.Seq(high, pda.Text(`\u`), low))))),
	)
}

// anyNumber is a number without bounds.
func anyNumber(integer bool) pda.Expr {
	whole := pda.Seq(
		pda.Optional(pda.Text("-")),
		pda.Alt(pda.Text("0"), pda.Seq(char('1', '9'), digits(0, maxWhole-1))),
	)
	if integer {
		return whole
	}
	exponent := pda.Seq(
		pda.Alt(pda.Text("e"), pda.Text("E")),
		pda.Optional(pda.Alt(pda.Text("+"), pda.Text("-"))), digits(1, 2),
	)
	return pda.Seq(whole, pda.Optional(pda.Seq(pda.Text("."), digits(1, maxFraction))), pda.Optional(exponent))
}
