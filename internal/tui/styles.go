package tui

import (
	"strings"

	"github.com/charmbracelet/lipgloss"
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

// newTheme works out the looks of a palette for a renderer.
func newTheme(r *lipgloss.Renderer, p palette) *theme {
	base := func() lipgloss.Style { return r.NewStyle() }
	color := func(c lipgloss.TerminalColor) lipgloss.Style {
		if p.mono {
			return base()
		}
		return base().Foreground(c)
	}
	faint := base().Faint(!p.plain)
	var styles [styleCount]lipgloss.Style
	styles[plain] = base()
	styles[dim] = faint
	styles[strong] = base().Bold(true)
	styles[border] = faint
	styles[focused] = color(p.focus).Bold(true)
	styles[heading] = faint
	styles[keyName] = color(p.focus).Bold(true)
	styles[disabled] = base().Faint(true)
	styles[prefill] = color(p.prefill)
	styles[decode] = color(p.decode)
	styles[good] = color(p.good)
	styles[warn] = color(p.warn).Bold(p.mono || p.plain)
	styles[bad] = color(p.bad).Bold(true)
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
				if p.mono || p.plain {
					v = v.Reverse(true)
				} else {
					v = v.Background(ground).Faint(false)
				}
				if style(s) == prefill && p == usualPalette() { // its blue is too dark for that ground
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
