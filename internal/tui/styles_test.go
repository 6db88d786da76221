package tui

import (
	"io"
	"strings"
	"testing"

	"github.com/charmbracelet/lipgloss"
	"github.com/muesli/termenv"

	"github.com/dynctl/dynctl/internal/tui/draw"
)

func colored(t *testing.T, profile termenv.Profile, dark bool, p draw.Palette) string {
	t.Helper()
	r := lipgloss.NewRenderer(io.Discard)
	r.SetColorProfile(profile)
	r.SetHasDarkBackground(dark)
	sc := lab(t)
	sc.m.theme = draw.NewTheme(r, p)
	return sc.m.View()
}

func TestThemes(t *testing.T) {
	const prefillRGB, decodeRGB = "38;2;0;113;178", "38;2;230;159;0"
	dark := colored(t, termenv.TrueColor, true, draw.UsualPalette())
	if !strings.Contains(dark, prefillRGB) || !strings.Contains(dark, decodeRGB) {
		t.Error("the dark theme lacks the role colors")
	}
	light := colored(t, termenv.TrueColor, false, draw.UsualPalette())
	if light == dark {
		t.Error("light and dark grounds look the same")
	}
	if basic := colored(t, termenv.ANSI, true, draw.UsualPalette()); strings.Contains(basic, "38;") {
		t.Error("a 16-color terminal gets more colors")
	}
	mono := colored(t, termenv.TrueColor, true, draw.PaletteOf(draw.ThemeMono))
	if strings.Contains(mono, "38;") || strings.Contains(mono, "48;") {
		t.Error("the mono theme uses color")
	}
	if !strings.Contains(mono, "\x1b[") {
		t.Error("the mono theme has no weight at all")
	}
	for name, view := range map[string]string{"dark": dark, "light": light, "mono": mono} {
		checkShape(t, view, 100, 30)
		for i, l := range strings.Split(view, "\n") {
			if at := strings.LastIndex(l, "\x1b["); at >= 0 && !strings.HasPrefix(l[at:], "\x1b[0m") {
				t.Errorf("%s: line %d leaves its color on: %q", name, i, l)
			}
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	tests := []struct {
		opts Options
		want string
	}{
		{Options{}, ""}, {Options{View: "leases", Theme: draw.ThemeMono}, ""},
		{Options{View: "attic"}, `view "attic": use workers, leases, queue, latency, events, router, nodes, index, planner`},
		{Options{Theme: "pink"}, `theme "pink": use auto, dark, light, mono, contrast, deuteranopia, tritanopia`},
	}
	for _, tt := range tests {
		err := tt.opts.Validate()
		if (err == nil) != (tt.want == "") || err != nil && err.Error() != tt.want {
			t.Errorf("%+v: %v, want %q", tt.opts, err, tt.want)
		}
	}
	if err := Run(t.Context(), newFakeSource(), Options{View: "attic"}); err == nil {
		t.Error("Run starts in a pane that does not exist")
	}
}

func TestRenderInColor(t *testing.T) {
	if view := Render(labSnapshot(), 100, 30, Options{Color: draw.ColorAlways, Theme: draw.ThemeDark}); !strings.Contains(view, "\x1b[") {
		t.Error("no color although it was asked for")
	}
	if view := Render(labSnapshot(), 100, 30, Options{View: "queue", Zoom: true}); !strings.Contains(view, "›3 queue depth") {
		t.Errorf("wrong pane:\n%s", view)
	}
	checkShape(t, Render(labSnapshot(), -4, 7, Options{}), 0, 7)
}
