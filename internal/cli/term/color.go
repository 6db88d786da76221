package term

// Colored decides whether a stream gets colors. mode is always, never or auto; a
// choice made by the user wins over the variables, these over the terminal.
func Colored(mode string, tty bool, env Env) bool {
	switch mode {
	case "always":
		return true
	case "never":
		return false
	}
	if env.Get("NO_COLOR") != "" || env.Get("CLICOLOR") == "0" || env.Get("TERM") == "dumb" {
		return false
	}
	return tty
}

// Palette colors text by what it means, from the 16 colors that every theme of a
// terminal defines. The zero value leaves text as it is. No meaning is in the color
// alone: marks and words stand beside it.
type Palette struct{ On bool }

func (p Palette) sgr(code, s string) string {
	if !p.On || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// Good colors what is as it should be.
func (p Palette) Good(s string) string { return p.sgr("32", s) }

// Warn colors what deserves a look.
func (p Palette) Warn(s string) string { return p.sgr("33", s) }

// Bad colors what is wrong.
func (p Palette) Bad(s string) string { return p.sgr("31", s) }

// Dim colors what is secondary.
func (p Palette) Dim(s string) string { return p.sgr("2", s) }

// Bold marks headings.
func (p Palette) Bold(s string) string { return p.sgr("1", s) }
