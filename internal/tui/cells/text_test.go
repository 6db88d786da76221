package cells

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestTextIsMeasuredInCells(t *testing.T) {
	tests := []struct {
		text string
		want int
	}{
		{"", 0}, {"worker-7", 8}, {"模型", 4}, {"é", 1}, {"e\u0301", 1}, {"👩‍👩‍👧", 2}, {"\u200b", 0}, {"a\tb", 3}, {"\x1b[0m", 4}, {"\xff", 1}, {"█░", 2},
	}
	for _, tt := range tests {
		if got := Width(tt.text); got != tt.want {
			t.Errorf("width of %q is %d, want %d", tt.text, got, tt.want)
		}
	}
}

func TestCutting(t *testing.T) {
	tests := []struct {
		text        string
		width       int
		right, left string // cut on the right, cut in the middle
	}{
		{"abcdef", 6, "abcdef", "abcdef"},
		{"abcdef", 5, "abcd…", "ab…ef"},
		{"abcdef", 3, "ab…", "a…f"},
		{"abcdef", 1, "a", "a"},
		{"abcdef", 0, "", ""},
		{"模型模型", 5, "模型…", "模…型"},
		{"模型模型", 4, "模…", "模…"},
		{"模型", 1, "", ""},
	}
	for _, tt := range tests {
		if got := Clip(tt.text, tt.width, "…"); got != tt.right {
			t.Errorf("clip(%q, %d) = %q, want %q", tt.text, tt.width, got, tt.right)
		}
		if got := ClipMiddle(tt.text, tt.width, "…"); got != tt.left {
			t.Errorf("clipMiddle(%q, %d) = %q, want %q", tt.text, tt.width, got, tt.left)
		}
	}
}

func TestFold(t *testing.T) {
	got := strings.Join(Fold("finish the running sequences 模型模型模型 x", 9), "|")
	if want := "finish|the|running|sequences|模型模型|模型 x"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for w := range 4 {
		Fold("模型 \x1b\x1b\x1b\x1b\xff\xff\xff\xff", w) // ends
	}
}

func FuzzText(f *testing.F) {
	f.Add("worker-7", uint8(4))
	f.Add("模型\x1b[31m👩‍👩‍👧\xff", uint8(3))
	f.Add("模型\xf0\x9f\x91 \u200d000000000000", uint8(3))
	f.Fuzz(func(t *testing.T, s string, width uint8) {
		w := int(width % 40)
		for name, got := range map[string]string{"clip": Clip(s, w, "…"), "clipMiddle": ClipMiddle(s, w, "…"), "head": head(s, w)} {
			if Width(got) > w && Width(s) > w {
				t.Errorf("%s(%q, %d) = %q: %d cells", name, s, w, got, Width(got))
			}
		}
		for _, l := range Fold(s, w) {
			if Width(l) > w {
				t.Errorf("fold(%q, %d): line %q", s, w, l)
			}
		}
		if s != "" && len(DropLast(s)) >= len(s) {
			t.Errorf("dropLast(%q) drops nothing", s)
		}
	})
}

func TestFormats(t *testing.T) {
	f := func(v float64) *float64 { return &v }
	tests := []struct{ name, got, want string }{
		{"no rate", CompactOr(nil), "-"}, {"zero", Compact(0), "0"}, {"small", Compact(0.44), "0.4"}, {"tens", Compact(38.2), "38"}, {"hundreds", Compact(210), "210"},
		{"almost a thousand", Compact(999.7), "1.0k"}, {"thousands", Compact(9800), "9.8k"}, {"many", Compact(123456), "123k"}, {"millions", Compact(1.2e6), "1.2M"},
		{"negative", Compact(-9800), "-9.8k"}, {"not a number", Compact(math.NaN()), "-"}, {"enormous", Compact(1e300), ">1Z"},
		{"rate", PerSecond(18.4), "18.4/s"}, {"commas", Commas(1204567), "1,204,567"}, {"negative commas", Commas(-1204), "-1,204"}, {"small commas", Commas(-120), "-120"},
		{"percent", Percent(f(0.714)), "71"}, {"no percent", Percent(nil), "-"},
		{"ms", Millis(f(142)), "142"}, {"ms tenths", Millis(f(11.2)), "11.2"}, {"ms hundredths", Millis(f(0.21)), "0.21"}, {"no ms", Millis(nil), "-"}, {"zero ms", Millis(f(0)), "0"},
		{"up seconds", Uptime(45 * time.Second), "45s"}, {"up hours", Uptime(62 * time.Minute), "1h02m"}, {"up days", Uptime(76 * time.Hour), "3d04h"},
		{"lease", Seconds(8799 * time.Millisecond), "8.7s"}, {"long lease", Seconds(120 * time.Second), "120s"}, {"over", Seconds(-1500 * time.Millisecond), "-1.5s"},
		{"clock", ClockLeft(281 * time.Second), "4:41"}, {"past", ClockLeft(-5 * time.Second), "-0:05"},
		{"rtt", RoundTrip(2 * time.Millisecond), "2ms"}, {"short rtt", RoundTrip(400 * time.Microsecond), "0.4ms"}, {"no rtt", RoundTrip(0), ""},
		{"size", Bytes(54 << 20), "54.0 MiB"}, {"bytes", Bytes(12), "12 B"}, {"big", Bytes(200 << 30), "200 GiB"},
		{"throughput", Throughput(f(2.1e9)), "2.1 GB/s"}, {"no throughput", Throughput(nil), "-"},
		{"interval", Interval(time.Minute), "1m"}, {"short interval", Interval(250 * time.Millisecond), "250ms"},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, tt.got, tt.want)
		}
	}
}
