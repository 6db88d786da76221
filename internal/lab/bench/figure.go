package bench

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/dynctl/dynctl/internal/bench/stats"
)

// Figure is one measured quantity: the median of its repetitions and their range.
type Figure struct {
	Median      float64 `json:"median"`
	Low         float64 `json:"low"`
	High        float64 `json:"high"`
	Repetitions int     `json:"repetitions"`
}

// Summarize makes a figure from the values of all repetitions, or the zero Figure without
// values. It ignores values that are not finite.
func Summarize(values []float64) Figure {
	v := slices.DeleteFunc(slices.Clone(values), func(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) })
	if len(v) == 0 {
		return Figure{}
	}
	slices.Sort(v)
	return Figure{Median: stats.Quantile(v, 0.5), Low: v[0], High: v[len(v)-1], Repetitions: len(v)}
}

// String returns the median with the range, such as "12.3 (11.9–13.0)".
func (f Figure) String() string {
	switch f.Repetitions {
	case 0:
		return "–"
	case 1:
		return number(f.Median)
	}
	return number(f.Median) + " (" + number(f.Low) + "–" + number(f.High) + ")"
}

// tail adds the median and the 95th and 99th percentile of durations to a sample, in the
// given unit, as name_p50 and so on.
func (s Sample) tail(name string, d []time.Duration, unit time.Duration) {
	v := make([]float64, len(d))
	for i := range d {
		v[i] = float64(d[i]) / float64(unit)
	}
	if len(v) == 0 {
		return
	}
	slices.Sort(v)
	s[name+"_p50"], s[name+"_p95"], s[name+"_p99"] = stats.Quantile(v, 0.5), stats.Quantile(v, 0.95), stats.Quantile(v, 0.99)
}

// number formats a value with three digits, or with all digits before the point, in
// groups.
func number(v float64) string {
	abs := math.Abs(v)
	switch {
	case abs >= 100:
		return group(strconv.FormatFloat(v, 'f', 0, 64))
	case abs >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case abs >= 1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case abs >= 0.0005:
		return strconv.FormatFloat(v, 'f', 3, 64)
	case v == 0:
		return "0"
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

// group puts commas between thousands.
func group(digits string) string {
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}
