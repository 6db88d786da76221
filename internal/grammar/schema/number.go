package schema

import (
	"math/big"
	"strings"

	"github.com/dynctl/dynctl/internal/grammar/pda"
)

// Digits of numbers where no bound needs more.
const (
	maxWhole    = 18
	maxFraction = 15
)

func numberKeyword(n *node, name string, v *value) error {
	exclusive, isExclusive := strings.CutPrefix(name, "exclusive")
	switch {
	case isExclusive && v.kind == kindBool: // of draft 4: about the bound beside it
		if v.parent.get(strings.ToLower(exclusive)) == nil {
			return refuse(v, "says whether %s is exclusive, which is missing", strings.ToLower(exclusive))
		}
		return nil
	case v.kind != kindNumber:
		return refuse(v, "must be a number, not %s", v.kind)
	}
	d, ok := parseDecimal(v.text)
	if !ok {
		return refuse(v, "the number has more than %d digits", maxDigits)
	}
	b := &bound{v, d, isExclusive || isTrue(v.parent.get("exclusive"+strings.ToUpper(name[:1])+name[1:]))}
	switch name {
	case "minimum", "exclusiveMinimum":
		n.low = tighter(n.low, b, 1)
	case "maximum", "exclusiveMaximum":
		n.high = tighter(n.high, b, -1)
	default:
		if d.negative || d.rat().Sign() == 0 {
			return refuse(v, "must be greater than 0")
		}
		n.multipleOf = v
	}
	return nil
}

// number compiles the numbers of a node.
func (c *compiler) number(n *node, integer bool) (pda.Expr, error) {
	if n.low == nil && n.high == nil && n.multipleOf == nil {
		return anyNumber(integer), nil
	}
	m, err := newModulus(n, integer)
	if err != nil {
		return nil, err
	}
	// Numbers from 0 up, and those below 0 by their absolute value.
	var alts []pda.Expr
	zero := bound{}
	zero.d.int = "0"
	if n.high == nil || !n.high.d.negative {
		low := zero
		if n.low != nil && !n.low.d.negative {
			low = *n.low
		}
		alts = append(alts, c.side(n, low, n.high, m, pda.Empty())...)
	}
	if n.low == nil || n.low.d.negative {
		low := zero
		low.exclusive = true // -0 is the 0 of the other side
		if n.high != nil && n.high.d.negative {
			low = n.high.opposite()
		}
		var high *bound
		if n.low != nil {
			b := n.low.opposite()
			high = &b
		}
		alts = append(alts, c.side(n, low, high, m, pda.Text("-"))...)
	}
	if m.full {
		return nil, refuse(n.multipleOf, "needs more than %d states; use a smaller number or narrower bounds", maxDigitStates)
	}
	if len(alts) == 0 {
		return nil, impossible(n.at, "no number satisfies the bounds and multipleOf")
	}
	return pda.Alt(alts...), nil
}

// opposite is the bound of the absolute values of a negative one.
func (b *bound) opposite() bound {
	o := *b
	o.d.negative = false
	return o
}

// side compiles numbers of one sign between bounds that are not negative; without
// high they end by their number of digits.
func (c *compiler) side(n *node, low bound, high *bound, m *modulus, sign pda.Expr) []pda.Expr {
	if high == nil {
		whole := maxWhole
		if len(low.d.int) >= whole {
			whole = len(low.d.int) + 1
		}
		high = &bound{n.at, decimal{int: strings.Repeat("9", whole), frac: strings.Repeat("9", m.fraction)}, false}
	}
	if low.d.rat().Cmp(high.d.rat()) > 0 {
		return nil
	}
	fraction := m.fraction
	if m.free {
		fraction = max(fraction, min(max(len(low.d.frac), len(high.d.frac))+2, maxDigits+2))
	}
	g := &digitGraph{graph: pda.NewGraph(), low: low, high: *high, m: m, fraction: fraction, numbers: map[digitState]int{}}
	if !g.build() {
		return nil
	}
	return []pda.Expr{pda.Seq(sign, g.graph)}
}

// modulus says which numbers are multiples: those that, written with scale digits
// after the point and read as an integer, are multiples of m.
type modulus struct {
	m        int64
	scale    int
	fraction int  // digits after the point
	free     bool // more digits than that are allowed where bounds need them
	full     bool // the states were too many
}

func newModulus(n *node, integer bool) (*modulus, error) {
	if n.multipleOf == nil {
		if integer {
			return &modulus{m: 1}, nil
		}
		return &modulus{m: 1, fraction: maxFraction, free: true}, nil
	}
	d, _ := parseDecimal(n.multipleOf.text)
	m, ok := new(big.Int).SetString(d.int+d.frac, 10)
	if !ok {
		return nil, refuse(n.multipleOf, "must be a number")
	}
	scale := len(d.frac)
	if integer && scale > 0 {
		// An integer is a multiple of m/10^scale if it is one of m/gcd(m, 10^scale).
		ten := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil)
		m.Div(m, new(big.Int).GCD(nil, nil, m, ten))
		scale = 0
	}
	if !m.IsInt64() || m.Int64() > maxDigitStates {
		return nil, refuse(n.multipleOf, "needs more than %d states; use a smaller number", maxDigitStates)
	}
	return &modulus{m: m.Int64(), scale: scale, fraction: scale}, nil
}
