package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// maxDigits bounds integers: Python refuses to print longer ones.
const maxDigits = 4300

const (
	minInt = math.MinInt
	maxInt = math.MaxInt
)

// normInt gives an integer its canonical form.
func normInt(v *big.Int) Value {
	if v.IsInt64() {
		return v.Int64()
	}
	return v
}

func formatInt(i int64) string { return strconv.FormatInt(i, 10) }

func boolInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// small returns the value of bools and small integers.
func small(v Value) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case bool:
		return boolInt(v), true
	}
	return 0, false
}

// integer returns the value of any integer or bool.
func integer(v Value) (*big.Int, bool) {
	if i, ok := small(v); ok {
		return big.NewInt(i), true
	}
	b, ok := v.(*big.Int)
	return b, ok
}

func isNumber(v Value) bool {
	switch v.(type) {
	case bool, int64, *big.Int, float64:
		return true
	}
	return false
}

// toFloat converts a number; integers beyond the range of floats fail.
func toFloat(v Value) (float64, error) {
	switch v := v.(type) {
	case float64:
		return v, nil
	case *big.Int:
		f, _ := new(big.Float).SetInt(v).Float64()
		if math.IsInf(f, 0) {
			return 0, errorf(OverflowError, "int too large to convert to float")
		}
		return f, nil
	}
	i, _ := small(v)
	return float64(i), nil
}

// floatToInt truncates a finite float.
func floatToInt(f float64) Value {
	if math.Abs(f) < 1<<62 {
		return int64(f)
	}
	b, _ := big.NewFloat(math.Trunc(f)).Int(nil)
	return normInt(b)
}

// intFromFloat is int(f).
func intFromFloat(f float64) (Value, error) {
	switch {
	case math.IsNaN(f):
		return nil, valueErrorf("cannot convert float NaN to integer")
	case math.IsInf(f, 0):
		return nil, errorf(OverflowError, "cannot convert float infinity to integer")
	}
	return floatToInt(f), nil
}

// formatFloat prints a float as Python's repr: the shortest digits that read back,
// with an exponent below 1e-4 and from 1e16.
func formatFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case f == 0:
		if math.Signbit(f) {
			return "-0.0"
		}
		return "0.0"
	}
	if a := math.Abs(f); a >= 1e16 || a < 1e-4 {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// parseInt is int(s) for text.
func parseInt(s string) (Value, bool) {
	s = strings.TrimFunc(s, isSpace)
	if len(s) > maxDigits {
		return nil, false
	}
	v, ok := new(big.Int).SetString(s, 10)
	if !ok {
		return nil, false
	}
	return normInt(v), true
}

// parseFloat is float(s) for text.
func parseFloat(s string) (float64, bool) {
	s = strings.TrimFunc(s, isSpace)
	if strings.ContainsAny(s, "xXpP_") {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil || math.IsInf(f, 0)
}
