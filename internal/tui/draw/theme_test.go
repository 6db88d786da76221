package draw

import (
	"io"
	"strings"
	"testing"
)

func TestColorOptions(t *testing.T) {
	t.Setenv("TERM", "xterm-256color")
	on := func(c Color) bool { return ThemeFor("", c, io.Discard).looks[Good][0].on != "" }
	t.Setenv("NO_COLOR", "1")
	if !on(ColorAlways) {
		t.Error("the flag does not win over NO_COLOR")
	}
	th := ThemeFor("", ColorAuto, io.Discard)
	for _, look := range th.looks {
		if strings.Contains(look[0].on, "38;") || strings.Contains(look[0].on, ";3") || strings.Contains(look[0].on, "[3") {
			t.Errorf("NO_COLOR still has color: %q", look[0].on)
		}
	}
	if th.looks[Plain][MarkSelected].on == "" {
		t.Error("NO_COLOR loses the selected row")
	}
	t.Setenv("TERM", "dumb")
	if on(ColorAuto) || ThemeFor("", ColorAuto, io.Discard).looks[Plain][MarkSelected].on != "" {
		t.Error("a dumb terminal gets escape sequences")
	}
}
