package tui

import (
	"io"
	"os"
	"strings"

	"github.com/charmbracelet/lipgloss"
	"github.com/muesli/termenv"
)

// style names a meaning; themes give it a look.
type style uint8

const (
	plain    style = iota
	dim            // secondary text, rest of a bar
	strong         // the program's name, numbers that matter
	border         // boxes
	focused        // border and title of the focused pane
	heading        // column titles
	keyName        // keys in the footer, in dialogs and in help
	disabled       // what cannot be done now
	prefill        // role colors
	decode
	good
	warn
	bad
	chosen // the button that enter presses
	styleCount
)

// mark changes the look of a whole row on top of its styles.
type mark uint8

const (
	markSelected mark = 1 << iota
	markStale         // old values: drawn faint
	markCount         // combinations of marks
)

// sgr is what switches a look on and off again; both are empty without color.
type sgr struct{ on, off string }

// theme holds the escape sequences of every style, worked out once.
type theme struct {
	looks [styleCount][markCount]sgr
}

// The palette is Okabe and Ito's, which stays apart in the common forms of
// color blindness. Light grounds get darker variants of the light colors.
func adaptive(dark, dark256, dark16, light, light256, light16 string) lipgloss.CompleteAdaptiveColor {
	return lipgloss.CompleteAdaptiveColor{
		Dark:  lipgloss.CompleteColor{TrueColor: dark, ANSI256: dark256, ANSI: dark16},
		Light: lipgloss.CompleteColor{TrueColor: light, ANSI256: light256, ANSI: light16},
	}
}

// newTheme works out the looks for a renderer. Mono uses weight and inversion
// alone, never a color.
func newTheme(r *lipgloss.Renderer, mono bool) *theme {
	base := func() lipgloss.Style { return r.NewStyle() }
	color := func(c lipgloss.TerminalColor) lipgloss.Style {
		if mono {
			return base()
		}
		return base().Foreground(c)
	}
	var styles [styleCount]lipgloss.Style
	styles[plain] = base()
	styles[dim] = base().Faint(true)
	styles[strong] = base().Bold(true)
	styles[border] = base().Faint(true)
	styles[focused] = color(adaptive("#56B4E9", "74", "14", "#0B6FA4", "25", "6")).Bold(true)
	styles[heading] = base().Faint(true)
	styles[keyName] = color(adaptive("#56B4E9", "74", "14", "#0B6FA4", "25", "6")).Bold(true)
	styles[disabled] = base().Faint(true)
	styles[prefill] = color(adaptive("#0072B2", "32", "12", "#0072B2", "25", "4"))
	styles[decode] = color(adaptive("#E69F00", "178", "11", "#9A6A00", "94", "3"))
	styles[good] = color(adaptive("#009E73", "36", "10", "#007A59", "29", "2"))
	styles[warn] = color(adaptive("#F0E442", "227", "11", "#7D6F00", "58", "3")).Bold(mono)
	styles[bad] = color(adaptive("#D55E00", "166", "9", "#B24A00", "130", "1")).Bold(true)
	styles[chosen] = base().Reverse(true).Bold(true)

	ground := adaptive("#2B3440", "237", "8", "#DCE6EE", "254", "7")
	t := &theme{}
	for s, st := range styles {
		for m := range mark(markCount) {
			v := st
			if m&markStale != 0 {
				v = v.Faint(true)
			}
			if m&markSelected != 0 {
				if mono {
					v = v.Reverse(true)
				} else {
					v = v.Background(ground).Faint(false)
				}
				if style(s) == prefill && !mono { // the palette's blue is too dark for that ground
					v = v.Foreground(adaptive("#5FB0E5", "75", "14", "#0072B2", "25", "4"))
				}
			}
			t.looks[s][m] = splitSGR(v.Render("x"))
		}
	}
	return t
}

func splitSGR(rendered string) sgr {
	on, off, ok := strings.Cut(rendered, "x")
	if !ok {
		return sgr{}
	}
	return sgr{on, off}
}

// plainTheme has no escape sequences at all.
func plainTheme() *theme { return &theme{} }

// themeFor chooses the look for an output. NO_COLOR takes color away, not
// weight and inversion: on a terminal it means the mono theme.
func themeFor(o Options, out io.Writer) *theme {
	if o.Color == ColorNever && out == nil {
		return plainTheme()
	}
	if out == nil {
		out = io.Discard
	}
	r := lipgloss.NewRenderer(out)
	mono := o.Theme == ThemeMono || o.Color == ColorNever
	profile := r.ColorProfile()
	if profile == termenv.Ascii {
		mono = mono || o.Color != ColorAlways
		if o.Color == ColorAlways {
			profile = termenv.ANSI256
		} else if isDumb(os.Getenv("TERM")) {
			return plainTheme()
		} else {
			profile = termenv.ANSI
		}
	}
	r.SetColorProfile(profile)
	switch o.Theme {
	case ThemeLight:
		r.SetHasDarkBackground(false)
	case ThemeDark:
		r.SetHasDarkBackground(true)
	default:
		// Bubble Tea asked the terminal when the process started, before the
		// program owned the input; asking again here could swallow a key.
		r.SetHasDarkBackground(lipgloss.HasDarkBackground())
	}
	return newTheme(r, mono)
}

func isDumb(term string) bool { return term == "dumb" || term == "" }
