package draw

// Glyphs is every character that is drawn rather than written. Each entry is
// one cell wide except more.
type Glyphs struct {
	Ready, Starting, Draining, Drained, Degraded, Lost string
	Unknown                                            string

	topLeft, topRight, bottomLeft, bottomRight, Horizontal, vertical string

	Full, empty string   // bars
	Spark       []string // rising

	Cursor   string // the row or pane that keys act on
	Caret    string // where typed text goes
	More     string // cut text
	Up, Down string // sort direction, keys
	sides    string // left and right
	Dot      string // between items
}

// UnicodeGlyphs are the usual signs.
func UnicodeGlyphs() *Glyphs {
	return &Glyphs{
		Ready: "●", Starting: "○", Draining: "◐", Drained: "◇", Degraded: "▲", Lost: "✕", Unknown: "?",
		topLeft: "╭", topRight: "╮", bottomLeft: "╰", bottomRight: "╯", Horizontal: "─", vertical: "│",
		Full: "█", empty: "░",
		Spark:  []string{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"},
		Cursor: "›", Caret: "█", More: "…", Up: "↑", Down: "↓", sides: "← →", Dot: "·",
	}
}

// ASCIIGlyphs are signs for terminals and fonts without others.
func ASCIIGlyphs() *Glyphs {
	return &Glyphs{
		Ready: "*", Starting: "o", Draining: "~", Drained: "=", Degraded: "!", Lost: "x", Unknown: "?",
		topLeft: "+", topRight: "+", bottomLeft: "+", bottomRight: "+", Horizontal: "-", vertical: "|",
		Full: "#", empty: ".",
		Spark:  []string{"_", ".", "-", "=", "#"},
		Cursor: ">", Caret: "_", More: "..", Up: "^", Down: "v", sides: "< >", Dot: "-",
	}
}
