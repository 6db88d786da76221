package draw

import (
	"math"
	"strings"
	"testing"
)

func TestSparklineGapsAndScale(t *testing.T) {
	v := func(f float64) *float64 { return &f }
	levels := UnicodeGlyphs().Spark
	got := Sparkline([]*float64{v(0), v(8), nil, v(1), v(4)}, 7, 1, 8, levels)
	if want := "  ▁█ ▁▄"; got[0] != want {
		t.Errorf("got %q, want %q", got[0], want)
	}
	got = Sparkline([]*float64{v(0), v(8), nil, v(1), v(4)}, 4, 2, 8, levels)
	if want := "█   |█ ▂█"; strings.Join(got, "|") != want {
		t.Errorf("got %q, want %q", strings.Join(got, "|"), want)
	}
	if got := Sparkline([]*float64{v(0), v(0)}, 2, 1, 0, levels); got[0] != "▁▁" {
		t.Errorf("zeros draw %q", got[0])
	}
}

func TestBarShowsSomeAndAll(t *testing.T) {
	tests := []struct {
		share float64
		want  string
	}{{0, "░░░░"}, {0.001, "█░░░"}, {0.5, "██░░"}, {1, "████"}, {7, "████"}, {-1, "░░░░"}, {math.NaN(), "░░░░"}}
	for _, tt := range tests {
		b := Bar(UnicodeGlyphs(), tt.share, 4, Good)
		if got := b[0].Text + b[1].Text; got != tt.want {
			t.Errorf("bar(%v) = %s, want %s", tt.share, got, tt.want)
		}
	}
}
