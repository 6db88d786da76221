package cells

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// Unknown is printed for values nobody knows; zero is printed as 0.
const Unknown = "-"

// OrUnknown returns s, or the sign of an unknown value for the empty string.
func OrUnknown(s string) string {
	if s == "" {
		return Unknown
	}
	return s
}

// Commas prints an integer with separators: 1,104.
func Commas[T int | int64 | uint64](n T) string {
	s := fmt.Sprint(n)
	start := 0
	if n < 0 {
		start = 1
	}
	for i := len(s) - 3; i > start; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// IntOr prints an integer that may be unknown.
func IntOr(p *int) string {
	if p == nil {
		return Unknown
	}
	return strconv.Itoa(*p)
}

// Finite reports whether f is a number.
func Finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// Compact prints a count or rate in at most five cells: 0.4, 38, 9.8k, 123k, 1.2M.
func Compact(f float64) string {
	if !Finite(f) {
		return Unknown
	}
	neg := ""
	if f < 0 {
		neg, f = "-", -f
	}
	switch {
	case f == 0:
		return "0"
	case f < 9.95 && f != math.Trunc(f):
		return neg + strconv.FormatFloat(f, 'f', 1, 64)
	case f < 999.5:
		return neg + strconv.FormatFloat(f, 'f', 0, 64)
	}
	for _, unit := range []string{"k", "M", "G", "T", "P", "E"} {
		f /= 1000
		if f < 99.95 {
			return neg + strconv.FormatFloat(f, 'f', 1, 64) + unit
		}
		if f < 999.5 {
			return neg + strconv.FormatFloat(f, 'f', 0, 64) + unit
		}
	}
	return neg + ">1Z"
}

// PerSecond prints a rate of requests, with tenths under a hundred: 18.4/s.
func PerSecond(f float64) string {
	if f >= 9.95 && f < 99.95 {
		return strconv.FormatFloat(f, 'f', 1, 64) + "/s"
	}
	return Compact(f) + "/s"
}

// CompactOr prints a count or rate that may be unknown.
func CompactOr(p *float64) string {
	if p == nil {
		return Unknown
	}
	return Compact(*p)
}

// Percent prints a ratio (0 to 1) as whole percents without the sign.
func Percent(p *float64) string {
	if p == nil || !Finite(*p) {
		return Unknown
	}
	return strconv.FormatFloat(*p*100, 'f', 0, 64)
}

// Millis prints milliseconds: 0.21, 6.1, 24.0, 142, 12.3k.
func Millis(p *float64) string {
	switch {
	case p == nil || !Finite(*p):
		return Unknown
	case *p == 0:
		return "0"
	case math.Abs(*p) < 0.995:
		return strconv.FormatFloat(*p, 'f', 2, 64)
	case math.Abs(*p) < 99.95:
		return strconv.FormatFloat(*p, 'f', 1, 64)
	}
	return Compact(*p)
}

// Uptime prints a long duration in two units: 45s, 14m, 2h11m, 3d04h.
func Uptime(d time.Duration) string {
	if d < 0 {
		d = 0
	}
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	case d < 1000*24*time.Hour:
		return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}

// Seconds prints a short duration with tenths, cut so that a countdown never
// shows more than is left: 8.7s, 120s, 2h11m.
func Seconds(d time.Duration) string {
	neg := ""
	if d < 0 {
		neg, d = "-", -d
	}
	switch {
	case d < 100*time.Second:
		tenths := int(d / (100 * time.Millisecond))
		return fmt.Sprintf("%s%d.%ds", neg, tenths/10, tenths%10)
	case d < 1000*time.Second:
		return fmt.Sprintf("%s%ds", neg, int(d.Seconds()))
	}
	return neg + Uptime(d)
}

// Age prints how long ago something was, in whole seconds under a minute.
func Age(d time.Duration) string { return Uptime(d) }

// ClockLeft prints minutes and seconds: 4:41.
func ClockLeft(d time.Duration) string {
	neg := ""
	if d < 0 {
		neg, d = "-", -d
	}
	s := int(d.Seconds())
	if s >= 3600 {
		return neg + Uptime(d)
	}
	return fmt.Sprintf("%s%d:%02d", neg, s/60, s%60)
}

// RoundTrip prints a round trip: 2ms, 0.4ms, <0.1ms.
func RoundTrip(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case d <= 0:
		return ""
	case ms < 0.1:
		return "<0.1ms"
	case ms < 0.95:
		return strconv.FormatFloat(ms, 'f', 1, 64) + "ms"
	case ms < 10000:
		return strconv.FormatFloat(ms, 'f', 0, 64) + "ms"
	}
	return Seconds(d)
}

// Bytes prints bytes in binary units: 54 MiB, 1.75 MiB.
func Bytes(n float64) string {
	if !Finite(n) {
		return Unknown
	}
	unit := "B"
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"} {
		if math.Abs(n) < 1024 {
			break
		}
		n, unit = n/1024, u
	}
	if unit == "B" || math.Abs(n) >= 99.95 {
		return fmt.Sprintf("%.0f %s", n, unit)
	}
	return fmt.Sprintf("%.1f %s", n, unit)
}

// Throughput prints bytes per second in decimal units: 2.1 GB/s.
func Throughput(p *float64) string {
	if p == nil || !Finite(*p) {
		return Unknown
	}
	n, unit := *p, "B/s"
	for _, u := range []string{"kB/s", "MB/s", "GB/s", "TB/s"} {
		if math.Abs(n) < 1000 {
			break
		}
		n, unit = n/1000, u
	}
	if unit == "B/s" || math.Abs(n) >= 99.95 {
		return fmt.Sprintf("%.0f %s", n, unit)
	}
	return fmt.Sprintf("%.1f %s", n, unit)
}

// Interval prints a setting: 250ms, 1s, 2m.
func Interval(d time.Duration) string {
	switch {
	case d <= 0:
		return Unknown
	case d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return d.String()
}

// Clamp returns v, or the nearer of lo and hi if v is not between them.
func Clamp(v, lo, hi int) int { return min(max(v, lo), hi) }
