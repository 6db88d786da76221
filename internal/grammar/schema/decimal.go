package schema

import (
	"math/big"
	"strconv"
	"strings"
)

// decimal is a number as digits: int without leading zeros, frac without trailing
// ones.
type decimal struct {
	negative  bool
	int, frac string
}

// maxDigits bounds numbers that are computed with, before and after the point.
const maxDigits = 64

// parseDecimal reads a JSON number; ok is false if it has too many digits.
func parseDecimal(text string) (d decimal, ok bool) {
	text, d.negative = strings.CutPrefix(text, "-")
	exponent := 0
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		e, err := strconv.Atoi(text[i+1:])
		if err != nil || e < -2*maxDigits || e > 2*maxDigits {
			return d, false
		}
		text, exponent = text[:i], e
	}
	d.int, d.frac, _ = strings.Cut(text, ".")
	if len(d.int)+len(d.frac) > 2*maxDigits {
		return d, false
	}
	for ; exponent > 0; exponent-- {
		d.frac += "0"
		d.int, d.frac = d.int+d.frac[:1], d.frac[1:]
	}
	for ; exponent < 0; exponent++ {
		d.int = "0" + d.int
		d.int, d.frac = d.int[:len(d.int)-1], d.int[len(d.int)-1:]+d.frac
	}
	d.int, d.frac = strings.TrimLeft(d.int, "0"), strings.TrimRight(d.frac, "0")
	if d.int == "" {
		d.int = "0"
	}
	if d.int == "0" && d.frac == "" {
		d.negative = false
	}
	return d, len(d.int) <= maxDigits && len(d.frac) <= maxDigits
}

func (d decimal) rat() *big.Rat {
	r, _ := new(big.Rat).SetString(d.int + "." + d.frac + "0")
	if d.negative {
		r.Neg(r)
	}
	return r
}
