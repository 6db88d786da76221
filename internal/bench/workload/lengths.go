package workload

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
)

// MaxTokens bounds lengths.
const MaxTokens = 1 << 24

// Lengths is a distribution of lengths in tokens. Draws are at least 1.
type Lengths struct {
	kind string
	a, b float64
}

// Fixed is always the same length.
func Fixed(n int) Lengths { return Lengths{kind: "fixed", a: float64(n)} }

// Draw draws a length.
func (l Lengths) Draw(r *rand.Rand) int {
	var v float64
	switch l.kind {
	case "uniform":
		return int(l.a) + r.IntN(int(l.b-l.a)+1)
	case "normal":
		v = l.a + l.b*r.NormFloat64()
	case "lognormal":
		square := math.Log1p(l.b * l.b / (l.a * l.a))
		v = math.Exp(math.Log(l.a) - square/2 + math.Sqrt(square)*r.NormFloat64())
	default:
		v = l.a
	}
	return int(math.Round(min(max(v, 1), MaxTokens)))
}

// Mean is the mean of the distribution, before draws are brought into bounds.
func (l Lengths) Mean() float64 {
	if l.kind == "uniform" {
		return (l.a + l.b) / 2
	}
	return l.a
}

// String is the distribution as [ParseLengths] reads it.
func (l Lengths) String() string {
	text := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
	if l.kind == "fixed" {
		return text(l.a)
	}
	return l.kind + ":" + text(l.a) + ":" + text(l.b)
}

// ParseLengths reads a number of tokens, uniform:LOW:HIGH, normal:MEAN:DEVIATION or
// lognormal:MEAN:DEVIATION. Mean and deviation are those of the lengths, not of logarithms.
func ParseLengths(s string) (Lengths, error) {
	l, err := parseLengths(s)
	if err != nil {
		return l, fmt.Errorf("%q is not a length in tokens, uniform:LOW:HIGH, normal:MEAN:DEVIATION or lognormal:MEAN:DEVIATION: %w", s, err)
	}
	return l, nil
}

func parseLengths(s string) (Lengths, error) {
	parts := strings.Split(s, ":")
	l := Lengths{kind: "fixed"}
	numbers := parts
	if len(parts) > 1 {
		l.kind, numbers = parts[0], parts[1:]
	}
	if want := map[string]int{"fixed": 1, "uniform": 2, "normal": 2, "lognormal": 2}[l.kind]; want != len(numbers) || len(parts) == 2 {
		return l, errors.New("no such distribution, or not its two numbers")
	}
	var v [2]float64
	for i, n := range numbers {
		var err error
		if v[i], err = strconv.ParseFloat(n, 64); err != nil {
			return l, err
		}
		least := 1.0
		if i == 1 && l.kind != "uniform" {
			least = 0
		}
		if !(v[i] >= least && v[i] <= MaxTokens) {
			return l, fmt.Errorf("%s is not between %v and %d", n, least, MaxTokens)
		}
	}
	l.a, l.b = v[0], v[1]
	switch {
	case (l.kind == "fixed" || l.kind == "uniform") && (l.a != math.Trunc(l.a) || l.b != math.Trunc(l.b)):
		return l, errors.New("tokens are whole")
	case l.kind == "uniform" && l.a > l.b:
		return l, fmt.Errorf("%v is more than %v", l.a, l.b)
	}
	return l, nil
}
