package draw

import "github.com/charmbracelet/lipgloss"

// Palette is the colors of a theme: the focus, the three roles, and the states from well to
// lost. Each has a variant for dark and for light grounds, and for terminals of 256 and of
// 16 colors.
type Palette struct {
	focus, prefill, decode, encode, good, warn, bad lipgloss.CompleteAdaptiveColor

	mono  bool // weight and inversion instead of color
	plain bool // nothing is faint
}

func adaptive(dark, dark256, dark16, light, light256, light16 string) lipgloss.CompleteAdaptiveColor {
	return lipgloss.CompleteAdaptiveColor{
		Dark:  lipgloss.CompleteColor{TrueColor: dark, ANSI256: dark256, ANSI: dark16},
		Light: lipgloss.CompleteColor{TrueColor: light, ANSI256: light256, ANSI: light16},
	}
}

// PaletteOf returns the colors of a theme; auto, dark and light share the usual ones.
func PaletteOf(theme string) Palette {
	switch theme {
	case ThemeMono:
		return Palette{mono: true}
	case ThemeContrast:
		return contrastPalette()
	case ThemeDeuteranopia:
		return deuteranopiaPalette()
	case ThemeTritanopia:
		return tritanopiaPalette()
	}
	return UsualPalette()
}

// UsualPalette is Okabe and Ito's, which stays apart in the common forms of color
// blindness. Light grounds get darker variants of the light colors.
func UsualPalette() Palette {
	return Palette{
		focus:   adaptive("#56B4E9", "74", "14", "#0B6FA4", "25", "6"),
		prefill: adaptive("#0072B2", "32", "12", "#0072B2", "25", "4"),
		decode:  adaptive("#E69F00", "178", "11", "#9A6A00", "94", "3"),
		encode:  adaptive("#CC79A7", "175", "13", "#8A3A68", "95", "5"),
		good:    adaptive("#009E73", "36", "10", "#007A59", "29", "2"),
		warn:    adaptive("#F0E442", "227", "11", "#7D6F00", "58", "3"),
		bad:     adaptive("#D55E00", "166", "9", "#B24A00", "130", "1"),
	}
}

// deuteranopiaPalette keeps apart what eyes without green, or without red, see: no
// green, and states that differ in lightness.
func deuteranopiaPalette() Palette {
	return Palette{
		focus:   adaptive("#CC79A7", "175", "13", "#8A3A68", "95", "5"),
		prefill: adaptive("#3D8BE0", "68", "12", "#0050B5", "25", "4"),
		decode:  adaptive("#E69F00", "178", "3", "#9A6A00", "94", "3"),
		encode:  adaptive("#E8E8E8", "254", "15", "#4A4A4A", "239", "8"),
		good:    adaptive("#A6D8FF", "153", "14", "#2F6FA8", "25", "6"),
		warn:    adaptive("#FFF04A", "227", "11", "#857A00", "100", "3"),
		bad:     adaptive("#C85A00", "166", "9", "#7A1F00", "88", "1"),
	}
}

// tritanopiaPalette keeps apart what eyes without blue see: teal and red, never
// blue beside green or yellow.
func tritanopiaPalette() Palette {
	return Palette{
		focus:   adaptive("#5FD7FF", "81", "14", "#005F73", "23", "6"),
		prefill: adaptive("#00A8B0", "37", "14", "#006B75", "24", "6"),
		decode:  adaptive("#FF8C9A", "210", "13", "#B0505F", "131", "5"),
		encode:  adaptive("#E8E8E8", "254", "15", "#4A4A4A", "239", "8"),
		good:    adaptive("#5FE0C0", "79", "10", "#00857A", "30", "2"),
		warn:    adaptive("#FFD0D8", "224", "15", "#8A5A66", "95", "5"),
		bad:     adaptive("#FF3B30", "203", "9", "#B00010", "124", "1"),
	}
}

// contrastPalette has at least seven times the luminance of the ground, or a
// seventh of it, and draws nothing faint.
func contrastPalette() Palette {
	return Palette{
		focus:   adaptive("#FFFFFF", "231", "15", "#000000", "16", "0"),
		prefill: adaptive("#7AB8FF", "111", "14", "#003A8C", "24", "4"),
		decode:  adaptive("#FFB000", "214", "11", "#6B3C00", "58", "5"),
		encode:  adaptive("#FFA8E0", "218", "13", "#7A0060", "90", "5"),
		good:    adaptive("#4DFF88", "84", "10", "#004D2B", "22", "2"),
		warn:    adaptive("#FFFF55", "227", "11", "#4D4400", "58", "5"),
		bad:     adaptive("#FF8A8A", "210", "9", "#8C0000", "88", "1"),
		plain:   true,
	}
}
