package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// formatSpec is one conversion of the % operator or of str.format.
type formatSpec struct {
	fill   rune // 0: space
	align  byte // '<', '>', '^' or 0
	sign   byte // '+', ' ' or 0
	zero   bool // zeros between sign and digits
	commas bool // between thousands
	width  int
	prec   int // -1: not given
	typ    byte
}

// maxFormatWidth bounds width and precision, which a template chooses.
const maxFormatWidth = 1 << 16

// formatWidth reads the digits of a width or precision and returns what follows them.
func formatWidth(s string) (int, string, error) {
	n := 0
	for s != "" && isDigit(s[0]) {
		if n = n*10 + int(s[0]-'0'); n > maxFormatWidth {
			return 0, "", limitErrorf("format width %d", n)
		}
		s = s[1:]
	}
	return n, s, nil
}

// pad aligns text to the width, to the given side unless the template says another.
func (f *formatSpec) pad(r *run, text string, side byte) (string, error) {
	n := f.width - runeCount(text)
	if n <= 0 {
		return text, nil
	}
	fill := f.fill
	if fill == 0 {
		fill = ' '
	}
	if err := r.alloc(n*utf8.RuneLen(fill) + len(text)); err != nil {
		return "", err
	}
	if f.align != 0 {
		side = f.align
	}
	padding := func(n int) string { return strings.Repeat(string(fill), n) }
	switch side {
	case '<':
		return text + padding(n), nil
	case '^':
		return padding(n/2) + text + padding(n-n/2), nil
	}
	return padding(n) + text, nil
}

// number puts the sign in front of digits and pads them.
func (f *formatSpec) number(r *run, neg bool, digits string) (string, error) {
	sign := ""
	switch {
	case neg:
		sign = "-"
	case f.sign != 0:
		sign = string(f.sign)
	}
	if f.commas {
		digits = thousands(digits)
	}
	if n := f.width - len(sign) - len(digits); f.zero && f.align == 0 && n > 0 {
		digits = strings.Repeat("0", n) + digits
	}
	return f.pad(r, sign+digits, '>')
}

func (f *formatSpec) integer(r *run, v *big.Int) (string, error) {
	base := 10
	if f.typ|32 == 'x' {
		base = 16
	}
	digits := new(big.Int).Abs(v).Text(base)
	if f.typ == 'X' {
		digits = strings.ToUpper(digits)
	}
	return f.number(r, v.Sign() < 0, digits)
}

// float formats with a fixed number of decimals, six unless the template says another.
func (f *formatSpec) float(r *run, v float64) (string, error) {
	prec := f.prec
	if prec < 0 {
		prec = 6
	}
	if err := r.alloc(prec + 320); err != nil {
		return "", err
	}
	a, unit := math.Abs(v), ""
	if f.typ == '%' {
		a, unit = a*100, "%"
	}
	digits := strconv.FormatFloat(a, 'f', prec, 64)
	switch {
	case math.IsNaN(v):
		digits = "nan"
	case math.IsInf(v, 0):
		digits = "inf"
	}
	return f.number(r, math.Signbit(v) && !math.IsNaN(v), digits+unit)
}

// text formats a string: precision cuts it.
func (f *formatSpec) text(r *run, s string, side byte) (string, error) {
	if f.prec >= 0 {
		s = substring(s, 0, f.prec)
	}
	return f.pad(r, s, side)
}

// thousands puts commas into the whole part of a number.
func thousands(digits string) string {
	whole, rest := digits, ""
	if i := strings.IndexFunc(digits, func(c rune) bool { return c < '0' || c > '9' }); i >= 0 {
		whole, rest = digits[:i], digits[i:]
	}
	var b strings.Builder
	for i := range len(whole) {
		if i > 0 && (len(whole)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteByte(whole[i])
	}
	return b.String() + rest
}
