package tui

import (
	"io"
	"strings"
	"testing"
)

func TestColorOptions(t *testing.T) {
	t.Setenv("TERM", "xterm-256color")
	on := func(o Options) bool { return themeFor(o.Theme, o.Color, io.Discard).looks[good][0].on != "" }
	t.Setenv("NO_COLOR", "1")
	if !on(Options{Color: ColorAlways}) {
		t.Error("the flag does not win over NO_COLOR")
	}
	th := themeFor("", ColorAuto, io.Discard)
	for _, look := range th.looks {
		if strings.Contains(look[0].on, "38;") || strings.Contains(look[0].on, ";3") || strings.Contains(look[0].on, "[3") {
			t.Errorf("NO_COLOR still has color: %q", look[0].on)
		}
	}
	if th.looks[plain][markSelected].on == "" {
		t.Error("NO_COLOR loses the selected row")
	}
	t.Setenv("TERM", "dumb")
	if on(Options{}) || themeFor("", ColorAuto, io.Discard).looks[plain][markSelected].on != "" {
		t.Error("a dumb terminal gets escape sequences")
	}
}
