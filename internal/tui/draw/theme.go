package draw

import (
	"io"
	"os"

	"github.com/charmbracelet/lipgloss"
	"github.com/muesli/termenv"
)

// Color says whether to use color.
type Color int

const (
	// ColorAuto asks the terminal and the environment: NO_COLOR, CLICOLOR, TERM.
	ColorAuto Color = iota
	// ColorNever draws without color; on a terminal weight and inversion stay.
	ColorNever
	// ColorAlways draws in color whatever the environment says.
	ColorAlways
)

// Themes, as --theme takes them.
const (
	ThemeAuto  = "auto"  // follows the ground of the terminal
	ThemeDark  = "dark"  // for dark grounds
	ThemeLight = "light" // for light grounds
	ThemeMono  = "mono"  // weight and inversion instead of color

	ThemeContrast     = "contrast"     // high contrast, nothing faint
	ThemeDeuteranopia = "deuteranopia" // for eyes that do not tell red from green
	ThemeTritanopia   = "tritanopia"   // for eyes that do not tell blue from green
)

// Themes lists the names of the themes.
func Themes() []string {
	return []string{ThemeAuto, ThemeDark, ThemeLight, ThemeMono, ThemeContrast, ThemeDeuteranopia, ThemeTritanopia}
}

// ThemeFor chooses the look for an output. NO_COLOR takes color away, not
// weight and inversion: on a terminal it means the mono theme.
func ThemeFor(name string, color Color, out io.Writer) *Theme {
	if color == ColorNever && out == nil {
		return PlainTheme()
	}
	if out == nil {
		out = io.Discard
	}
	r := lipgloss.NewRenderer(out)
	p := PaletteOf(name)
	if color == ColorNever {
		p = PaletteOf(ThemeMono)
	}
	profile := r.ColorProfile()
	if profile == termenv.Ascii {
		if color != ColorAlways {
			p = PaletteOf(ThemeMono)
		}
		if color == ColorAlways {
			profile = termenv.ANSI256
		} else if isDumb(os.Getenv("TERM")) {
			return PlainTheme()
		} else {
			profile = termenv.ANSI
		}
	}
	r.SetColorProfile(profile)
	switch name {
	case ThemeLight:
		r.SetHasDarkBackground(false)
	case ThemeDark:
		r.SetHasDarkBackground(true)
	default:
		// Bubble Tea asked the terminal when the process started, before the
		// program owned the input; asking again here could swallow a key.
		r.SetHasDarkBackground(lipgloss.HasDarkBackground())
	}
	return NewTheme(r, p)
}

func isDumb(term string) bool { return term == "dumb" || term == "" }
