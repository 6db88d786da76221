package draw

import (
	"fmt"
	"math"
	"testing"

	"github.com/charmbracelet/lipgloss"
)

// linear is a color as light: red, green and blue from 0 to 1.
type linear [3]float64

func light(t *testing.T, hex string) linear {
	t.Helper()
	var rgb [3]int
	if _, err := fmt.Sscanf(hex, "#%02X%02X%02X", &rgb[0], &rgb[1], &rgb[2]); err != nil {
		t.Fatalf("%q: %v", hex, err)
	}
	var l linear
	for i, v := range rgb {
		if x := float64(v) / 255; x <= 0.04045 {
			l[i] = x / 12.92
		} else {
			l[i] = math.Pow((x+0.055)/1.055, 2.4)
		}
	}
	return l
}

// eyes are ways to see, as matrices of Machado, Oliveira and Fernandes (2009) at full
// severity.
var eyes = map[string][3]linear{
	"usual":  {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
	"protan": {{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}},
	"deutan": {{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}},
	"tritan": {{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602}, {0.004733, 0.691367, 0.303900}},
}

func (l linear) seenBy(eye string) (out linear) {
	for i, row := range eyes[eye] {
		v := row[0]*l[0] + row[1]*l[1] + row[2]*l[2]
		out[i] = math.Min(math.Max(v, 0), 1)
	}
	return out
}

func (l linear) luminance() float64 { return 0.2126*l[0] + 0.7152*l[1] + 0.0722*l[2] }

// lab is the color in CIE L*a*b* under daylight.
func (l linear) lab() linear {
	f := func(t float64) float64 {
		if t > 0.008856 {
			return math.Cbrt(t)
		}
		return 7.787*t + 16.0/116
	}
	x := f((0.4124*l[0] + 0.3576*l[1] + 0.1805*l[2]) / 0.95047)
	y := f(l.luminance())
	z := f((0.0193*l[0] + 0.1192*l[1] + 0.9505*l[2]) / 1.08883)
	return linear{116*y - 16, 500 * (x - y), 200 * (y - z)}
}

// apart is the CIE76 difference of two colors; about 2 is just noticeable.
func apart(a, b linear) float64 {
	p, q := a.lab(), b.lab()
	return math.Sqrt((p[0]-q[0])*(p[0]-q[0]) + (p[1]-q[1])*(p[1]-q[1]) + (p[2]-q[2])*(p[2]-q[2]))
}

func contrast(a, b linear) float64 {
	x, y := a.luminance(), b.luminance()
	return (math.Max(x, y) + 0.05) / (math.Min(x, y) + 0.05)
}

// States and roles stay apart for the eyes a theme is made for, and all can be read on
// the usual grounds.
func TestPalettesStayApart(t *testing.T) {
	const different = 20
	tests := []struct {
		theme   string
		eyes    []string
		reading float64 // least contrast with the ground, as WCAG counts
	}{
		{ThemeDark, []string{"usual"}, 3},
		{ThemeContrast, []string{"usual"}, 7},
		{ThemeDeuteranopia, []string{"usual", "deutan", "protan"}, 3},
		{ThemeTritanopia, []string{"usual", "tritan"}, 3},
	}
	for _, tt := range tests {
		p := PaletteOf(tt.theme)
		for _, dark := range []bool{true, false} {
			ground, kind := light(t, "#FFFFFF"), "light"
			if dark {
				ground, kind = light(t, "#1E1E1E"), "dark"
			}
			if dark && tt.theme == ThemeContrast {
				ground = light(t, "#000000")
			}
			of := func(c lipgloss.CompleteAdaptiveColor) linear {
				if dark {
					return light(t, c.Dark.TrueColor)
				}
				return light(t, c.Light.TrueColor)
			}
			colors := map[string]linear{"prefill": of(p.prefill), "decode": of(p.decode), "encode": of(p.encode), "good": of(p.good), "warn": of(p.warn), "bad": of(p.bad), "focus": of(p.focus)}
			for name, c := range colors {
				if r := contrast(c, ground); r < tt.reading {
					t.Errorf("%s on %s ground: %s has a contrast of %.1f, want %.0f", tt.theme, kind, name, r, tt.reading)
				}
			}
			for _, eye := range tt.eyes {
				for _, pair := range [][2]string{{"prefill", "decode"}, {"prefill", "encode"}, {"decode", "encode"}, {"good", "warn"}, {"good", "bad"}, {"warn", "bad"}} {
					if d := apart(colors[pair[0]].seenBy(eye), colors[pair[1]].seenBy(eye)); d < different {
						t.Errorf("%s on %s ground: %s and %s differ by %.0f for %s eyes, want %d", tt.theme, kind, pair[0], pair[1], d, eye, different)
					}
				}
			}
		}
	}
}
