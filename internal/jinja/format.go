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
	fill  rune // 0: space
	align byte // '<', '>', '^', '=' or 0
	sign  byte // '+', ' ' or 0
	alt   bool
	zero  bool
	group byte // ',' or '_' between digits
	width int
	prec  int // -1: not given
	typ   byte
}

// maxFormatWidth bounds width and precision, which a template chooses.
const maxFormatWidth = 1 << 16

// pad aligns text to the width. Numbers may be filled between sign and digits.
func (f *formatSpec) pad(r *run, text string, number bool) (string, error) {
	align, fill := f.align, f.fill
	if f.zero && align == 0 && number {
		align = '='
		if fill == 0 {
			fill = '0'
		}
	}
	if align == 0 {
		align = '<'
		if number {
			align = '>'
		}
	}
	if fill == 0 {
		fill = ' '
		if f.zero {
			fill = '0'
		}
	}
	n := f.width - runeCount(text)
	if n <= 0 {
		return text, nil
	}
	if err := r.alloc(n*utf8.RuneLen(fill) + len(text)); err != nil {
		return "", err
	}
	padding := func(n int) string { return strings.Repeat(string(fill), n) }
	switch align {
	case '<':
		return text + padding(n), nil
	case '^':
		return padding(n/2) + text + padding(n-n/2), nil
	case '=':
		head := 0
		if text != "" && strings.IndexByte("+- ", text[0]) >= 0 {
			head = 1
		}
		if f.alt && len(text) > head+1 && text[head] == '0' && strings.IndexByte("xXobB", text[head+1]) >= 0 {
			head += 2
		}
		return text[:head] + padding(n) + text[head:], nil
	}
	return padding(n) + text, nil
}

// signed puts the sign in front of the digits of a number.
func (f *formatSpec) signed(neg bool, digits string) string {
	switch {
	case neg:
		return "-" + digits
	case f.sign != 0:
		return string(f.sign) + digits
	}
	return digits
}

func (f *formatSpec) integer(r *run, v *big.Int) (string, error) {
	base, prefix := 10, ""
	switch f.typ {
	case 'b':
		base, prefix = 2, "0b"
	case 'o':
		base, prefix = 8, "0o"
	case 'x', 'X':
		base, prefix = 16, "0x"
	}
	digits := new(big.Int).Abs(v).Text(base)
	if f.prec > len(digits) {
		digits = strings.Repeat("0", f.prec-len(digits)) + digits
	}
	if f.group != 0 {
		size := 3
		if base != 10 {
			size = 4
		}
		digits = grouped(digits, f.group, size)
	}
	if f.alt && base != 10 {
		digits = prefix + digits
	}
	if f.typ == 'X' {
		digits = strings.ToUpper(digits)
	}
	return f.pad(r, f.signed(v.Sign() < 0, digits), true)
}

func grouped(digits string, mark byte, size int) string {
	var b strings.Builder
	for i := range len(digits) {
		if i > 0 && (len(digits)-i)%size == 0 {
			b.WriteByte(mark)
		}
		b.WriteByte(digits[i])
	}
	return b.String()
}

func (f *formatSpec) float(r *run, v float64) (string, error) {
	neg := math.Signbit(v) && !math.IsNaN(v)
	a := math.Abs(v)
	prec := f.prec
	if prec < 0 {
		prec = 6
	}
	var digits string
	switch {
	case math.IsNaN(v):
		digits = "nan"
	case math.IsInf(v, 0):
		digits = "inf"
	default:
		if err := r.alloc(prec + 320); err != nil {
			return "", err
		}
		digits = f.finite(a, prec)
	}
	if f.typ == 'E' || f.typ == 'F' || f.typ == 'G' {
		digits = strings.ToUpper(digits)
	}
	if f.group != 0 && isDigit(digits[0]) {
		whole, rest := digits, ""
		if i := strings.IndexAny(digits, ".eE%"); i >= 0 {
			whole, rest = digits[:i], digits[i:]
		}
		digits = grouped(whole, f.group, 3) + rest
	}
	return f.pad(r, f.signed(neg, digits), true)
}

// finite writes the digits of a finite float that is not negative.
func (f *formatSpec) finite(a float64, prec int) string {
	switch f.typ {
	case 'e', 'E':
		return strconv.FormatFloat(a, 'e', prec, 64)
	case 'f', 'F':
		s := strconv.FormatFloat(a, 'f', prec, 64)
		if f.alt && prec == 0 {
			s += "."
		}
		return s
	case '%':
		return strconv.FormatFloat(a*100, 'f', prec, 64) + "%"
	case 0:
		if f.prec < 0 {
			return formatFloat(a)
		}
		return general(a, max(prec, 1), f.alt, true)
	}
	return general(a, max(prec, 1), f.alt, false)
}

// general is the g format: exponent notation for small and large numbers,
// trailing zeros dropped. With point a whole number keeps one decimal, which is
// what an empty type means for floats.
func general(a float64, prec int, keep, point bool) string {
	s := strconv.FormatFloat(a, 'e', prec-1, 64)
	at := strings.IndexByte(s, 'e')
	exp, _ := strconv.Atoi(s[at+1:])
	limit := prec
	if point {
		limit-- // one digit is kept for the decimal
	}
	if exp < -4 || exp >= limit {
		mantissa := s[:at]
		if !keep {
			mantissa = trimZeros(mantissa)
		}
		return mantissa + s[at:]
	}
	s = strconv.FormatFloat(a, 'f', prec-1-exp, 64)
	if !keep {
		s = trimZeros(s)
	}
	if point && !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

func trimZeros(s string) string {
	if !strings.Contains(s, ".") {
		return s
	}
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// text formats a string: precision cuts it.
func (f *formatSpec) text(r *run, s string) (string, error) {
	if f.prec >= 0 {
		s = substring(s, 0, f.prec)
	}
	return f.pad(r, s, false)
}

// charFor is the c conversion of an integer.
func charFor(v *big.Int) (string, error) {
	if !v.IsInt64() || v.Int64() < 0 || v.Int64() > utf8.MaxRune {
		return "", errorf(OverflowError, "%%c arg not in range(0x110000)")
	}
	return string(rune(v.Int64())), nil
}
