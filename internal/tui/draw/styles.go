package draw

import (
	"strings"

	"github.com/charmbracelet/lipgloss"
)

// Style names a meaning; themes give it a look.
type Style uint8

// The meanings.
const (
	Plain    Style = iota
	Dim            // secondary text, rest of a bar
	Strong         // the program's name, numbers that matter
	Border         // boxes
	Focused        // border and title of the focused pane
	Heading        // column titles
	KeyName        // keys in the footer, in dialogs and in help
	Disabled       // what cannot be done now
	Prefill        // role colors
	Decode
	Encode
	Good
	Warn
	Bad
	Chosen // the button that enter presses
	styleCount
)

// Mark changes the look of a whole row on top of its styles.
type Mark uint8

// The marks.
const (
	MarkSelected Mark = 1 << iota
	MarkStale         // old values: drawn faint
	markCount         // combinations of marks
)

// sgr holds the sequences that switch a look on and off; both are empty without color.
type sgr struct{ on, off string }

// Theme holds the escape sequences of every style, worked out once.
type Theme struct {
	looks [styleCount][markCount]sgr
}

// NewTheme works out the looks of a palette for a renderer.
func NewTheme(r *lipgloss.Renderer, p Palette) *Theme {
	base := func() lipgloss.Style { return r.NewStyle() }
	color := func(c lipgloss.TerminalColor) lipgloss.Style {
		if p.mono {
			return base()
		}
		return base().Foreground(c)
	}
	faint := base().Faint(!p.plain)
	var styles [styleCount]lipgloss.Style
	styles[Plain] = base()
	styles[Dim] = faint
	styles[Strong] = base().Bold(true)
	styles[Border] = faint
	styles[Focused] = color(p.focus).Bold(true)
	styles[Heading] = faint
	styles[KeyName] = color(p.focus).Bold(true)
	styles[Disabled] = base().Faint(true)
	styles[Prefill] = color(p.prefill)
	styles[Decode] = color(p.decode)
	styles[Encode] = color(p.encode)
	styles[Good] = color(p.good)
	styles[Warn] = color(p.warn).Bold(p.mono || p.plain)
	styles[Bad] = color(p.bad).Bold(true)
	styles[Chosen] = base().Reverse(true).Bold(true)

	ground := adaptive("#2B3440", "237", "8", "#DCE6EE", "254", "7")
	t := &Theme{}
	for s, st := range styles {
		for m := range Mark(markCount) {
			v := st
			if m&MarkStale != 0 {
				v = v.Faint(true)
			}
			if m&MarkSelected != 0 {
				if p.mono || p.plain {
					v = v.Reverse(true)
				} else {
					v = v.Background(ground).Faint(false)
				}
				if Style(s) == Prefill && p == UsualPalette() { // its blue is too dark for that ground
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

// PlainTheme has no escape sequences at all.
func PlainTheme() *Theme { return &Theme{} }
