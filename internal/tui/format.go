package tui

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// unknown is printed for values nobody knows; zero is printed as 0.
const unknown = "-"

// orUnknown returns s, or the sign of an unknown value for the empty string.
func orUnknown(s string) string {
	if s == "" {
		return unknown
	}
	return s
}

// commas prints an integer with separators: 1,104.
func commas[T int | int64 | uint64](n T) string {
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

func intOr(p *int) string {
	if p == nil {
		return unknown
	}
	return strconv.Itoa(*p)
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// compact prints a count or rate in at most five cells: 0.4, 38, 9.8k, 123k, 1.2M.
func compact(f float64) string {
	if !finite(f) {
		return unknown
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

// perSecond prints a rate of requests, with tenths under a hundred: 18.4/s.
func perSecond(f float64) string {
	if f >= 9.95 && f < 99.95 {
		return strconv.FormatFloat(f, 'f', 1, 64) + "/s"
	}
	return compact(f) + "/s"
}

func compactOr(p *float64) string {
	if p == nil {
		return unknown
	}
	return compact(*p)
}

// percent prints a ratio (0 to 1) as whole percents without the sign.
func percent(p *float64) string {
	if p == nil || !finite(*p) {
		return unknown
	}
	return strconv.FormatFloat(*p*100, 'f', 0, 64)
}

// millis prints milliseconds: 0.21, 6.1, 24.0, 142, 12.3k.
func millis(p *float64) string {
	switch {
	case p == nil || !finite(*p):
		return unknown
	case *p == 0:
		return "0"
	case math.Abs(*p) < 0.995:
		return strconv.FormatFloat(*p, 'f', 2, 64)
	case math.Abs(*p) < 99.95:
		return strconv.FormatFloat(*p, 'f', 1, 64)
	}
	return compact(*p)
}

// uptime prints a long duration in two units: 45s, 14m, 2h11m, 3d04h.
func uptime(d time.Duration) string {
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

// seconds prints a short duration with tenths, cut so that a countdown never
// shows more than is left: 8.7s, 120s, 2h11m.
func seconds(d time.Duration) string {
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
	return neg + uptime(d)
}

// age prints how long ago something was, in whole seconds under a minute.
func age(d time.Duration) string { return uptime(d) }

// clockLeft prints minutes and seconds: 4:41.
func clockLeft(d time.Duration) string {
	neg := ""
	if d < 0 {
		neg, d = "-", -d
	}
	s := int(d.Seconds())
	if s >= 3600 {
		return neg + uptime(d)
	}
	return fmt.Sprintf("%s%d:%02d", neg, s/60, s%60)
}

// rtt prints a round trip: 2ms, 0.4ms, <0.1ms.
func rtt(d time.Duration) string {
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
	return seconds(d)
}

// size prints bytes in binary units: 54 MiB, 1.75 MiB.
func size(n float64) string {
	if !finite(n) {
		return unknown
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

// throughput prints bytes per second in decimal units: 2.1 GB/s.
func throughput(p *float64) string {
	if p == nil || !finite(*p) {
		return unknown
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

// interval prints a setting: 250ms, 1s, 2m.
func intervalText(d time.Duration) string {
	switch {
	case d <= 0:
		return unknown
	case d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return d.String()
}

// clamp returns v, or the nearer of lo and hi if v is not between them.
func clamp(v, lo, hi int) int { return min(max(v, lo), hi) }
