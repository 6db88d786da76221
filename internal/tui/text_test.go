package tui

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
		if got := textWidth(tt.text); got != tt.want {
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
		if got := clip(tt.text, tt.width, "…"); got != tt.right {
			t.Errorf("clip(%q, %d) = %q, want %q", tt.text, tt.width, got, tt.right)
		}
		if got := clipMiddle(tt.text, tt.width, "…"); got != tt.left {
			t.Errorf("clipMiddle(%q, %d) = %q, want %q", tt.text, tt.width, got, tt.left)
		}
	}
}

func TestFold(t *testing.T) {
	got := strings.Join(fold("finish the running sequences 模型模型模型 x", 9), "|")
	if want := "finish|the|running|sequences|模型模型|模型 x"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for w := range 4 {
		fold("模型 \x1b\x1b\x1b\x1b\xff\xff\xff\xff", w) // ends
	}
}

func FuzzText(f *testing.F) {
	f.Add("worker-7", uint8(4))
	f.Add("模型\x1b[31m👩‍👩‍👧\xff", uint8(3))
	f.Add("模型\xf0\x9f\x91 \u200d000000000000", uint8(3))
	f.Fuzz(func(t *testing.T, s string, width uint8) {
		w := int(width % 40)
		for name, got := range map[string]string{"clip": clip(s, w, "…"), "clipMiddle": clipMiddle(s, w, "…"), "head": head(s, w)} {
			if textWidth(got) > w && textWidth(s) > w {
				t.Errorf("%s(%q, %d) = %q: %d cells", name, s, w, got, textWidth(got))
			}
		}
		for _, l := range fold(s, w) {
			if textWidth(l) > w {
				t.Errorf("fold(%q, %d): line %q", s, w, l)
			}
		}
		if s != "" && len(dropLast(s)) >= len(s) {
			t.Errorf("dropLast(%q) drops nothing", s)
		}
	})
}

func TestFormats(t *testing.T) {
	f := func(v float64) *float64 { return &v }
	tests := []struct{ name, got, want string }{
		{"no rate", compactOr(nil), "-"}, {"zero", compact(0), "0"}, {"small", compact(0.44), "0.4"}, {"tens", compact(38.2), "38"}, {"hundreds", compact(210), "210"},
		{"almost a thousand", compact(999.7), "1.0k"}, {"thousands", compact(9800), "9.8k"}, {"many", compact(123456), "123k"}, {"millions", compact(1.2e6), "1.2M"},
		{"negative", compact(-9800), "-9.8k"}, {"not a number", compact(math.NaN()), "-"}, {"enormous", compact(1e300), ">1Z"},
		{"rate", perSecond(18.4), "18.4/s"}, {"commas", commas(1204567), "1,204,567"}, {"negative commas", commas(-1204), "-1,204"}, {"small commas", commas(-120), "-120"},
		{"percent", percent(f(0.714)), "71"}, {"no percent", percent(nil), "-"},
		{"ms", millis(f(142)), "142"}, {"ms tenths", millis(f(11.2)), "11.2"}, {"ms hundredths", millis(f(0.21)), "0.21"}, {"no ms", millis(nil), "-"}, {"zero ms", millis(f(0)), "0"},
		{"up seconds", uptime(45 * time.Second), "45s"}, {"up hours", uptime(62 * time.Minute), "1h02m"}, {"up days", uptime(76 * time.Hour), "3d04h"},
		{"lease", seconds(8799 * time.Millisecond), "8.7s"}, {"long lease", seconds(120 * time.Second), "120s"}, {"over", seconds(-1500 * time.Millisecond), "-1.5s"},
		{"clock", clockLeft(281 * time.Second), "4:41"}, {"past", clockLeft(-5 * time.Second), "-0:05"},
		{"rtt", rtt(2 * time.Millisecond), "2ms"}, {"short rtt", rtt(400 * time.Microsecond), "0.4ms"}, {"no rtt", rtt(0), ""},
		{"size", size(54 << 20), "54.0 MiB"}, {"bytes", size(12), "12 B"}, {"big", size(200 << 30), "200 GiB"},
		{"throughput", throughput(f(2.1e9)), "2.1 GB/s"}, {"no throughput", throughput(nil), "-"},
		{"interval", intervalText(time.Minute), "1m"}, {"short interval", intervalText(250 * time.Millisecond), "250ms"},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, tt.got, tt.want)
		}
	}
}
