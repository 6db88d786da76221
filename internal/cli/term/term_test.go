package term_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dynctl/dynctl/internal/cli/term"
)

func TestColored(t *testing.T) {
	for _, tc := range []struct {
		name, mode string
		tty        bool
		env        term.Env
		want       bool
	}{
		{"terminal", "auto", true, nil, true},
		{"pipe", "auto", false, nil, false},
		{"no color", "auto", true, term.Env{"NO_COLOR=1"}, false},
		{"no color, empty", "auto", true, term.Env{"NO_COLOR="}, true},
		{"clicolor", "auto", true, term.Env{"CLICOLOR=0"}, false},
		{"dumb", "auto", true, term.Env{"TERM=dumb"}, false},
		{"the choice wins", "always", false, term.Env{"NO_COLOR=1", "TERM=dumb"}, true},
		{"never", "never", true, nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := term.Colored(tc.mode, tc.tty, tc.env); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
	if got := (term.Palette{}).Bad("x"); got != "x" {
		t.Errorf("without color: %q", got)
	}
	if got := (term.Palette{On: true}).Bad("x"); got != "\x1b[31mx\x1b[0m" {
		t.Errorf("with color: %q", got)
	}
}

func TestEnvTakesTheLast(t *testing.T) {
	env := term.Env{"A=1", "AB=2", "A=3"}
	if env.Get("A") != "3" || env.Get("AB") != "2" || env.Get("B") != "" {
		t.Errorf("A=%q AB=%q B=%q", env.Get("A"), env.Get("AB"), env.Get("B"))
	}
}

func TestWhoIsThere(t *testing.T) {
	all := term.Streams{InTTY: true, OutTTY: true, ErrTTY: true}
	xterm := term.Env{"TERM=xterm"}
	if !all.Interactive(nil) || !all.Animated(xterm) || !all.Screen(xterm) {
		t.Error("a terminal is neither interactive nor animated")
	}
	if all.Interactive(term.Env{"CI=true"}) || all.Animated(term.Env{"TERM=xterm", "CI=true"}) {
		t.Error("a build server is asked")
	}
	for _, v := range []string{"ACCESSIBLE=1", "TERM=dumb", "TERM="} {
		if all.Animated(term.Env{"TERM=xterm", v}) {
			t.Errorf("animated with %s", v)
		}
	}
	for _, v := range []string{"TERM=dumb", "TERM="} {
		if all.Screen(term.Env{v}) || all.Redraws(term.Env{v}) {
			t.Errorf("moves the cursor with %s", v)
		}
	}
	if noKeys := (term.Streams{OutTTY: true}); noKeys.Screen(xterm) || !noKeys.Redraws(xterm) {
		t.Error("a terminal without keys has no dashboard, and can be written over")
	}
	if (term.Streams{InTTY: true}).Interactive(nil) {
		t.Error("asks a pipe")
	}
}

func TestSize(t *testing.T) {
	if w, h := (term.Streams{}).Size(); w != 80 || h != 24 {
		t.Errorf("unknown size is %dx%d", w, h)
	}
	s := term.Streams{Measure: func() (int, int) { return 132, 0 }}
	if w, h := s.Size(); w != 132 || h != 24 {
		t.Errorf("got %dx%d", w, h)
	}
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"plain text":            "plain text",
		"two \n\n  lines\there": "two lines here",
		"\x1b[31mred\x1b[m":     "?[31mred?[m",
		"\u009b31m":             "?31m",
		"\u202etxt":             "?txt",
		"bad \xff byte":         "bad ? byte",
		"  a   b ":              "a   b",
		"größe 模型":              "größe 模型",
	} {
		if got := term.Clean(in); got != want {
			t.Errorf("Clean(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzClean(f *testing.F) {
	f.Add("a\x1b[2Jb", 3)
	f.Add("模型\n", 1)
	f.Fuzz(func(t *testing.T, s string, width int) {
		c := term.Clean(s)
		if !utf8.ValidString(c) || strings.ContainsAny(c, "\x1b\n\r\t\x00") {
			t.Fatalf("Clean(%q) = %q", s, c)
		}
		width = min(max(width, 0), 200)
		if got := term.Width(term.Clip(c, width)); got > width {
			t.Fatalf("Clip(%q, %d) takes %d cells", c, width, got)
		}
	})
}

func TestPadding(t *testing.T) {
	if got := term.PadRight("模", 4) + "|" + term.PadLeft("7", 3) + "|" + term.Clip("worker-12", 6); got != "模  |  7|worke…" {
		t.Errorf("got %q", got)
	}
}
