package tui

// glyphSet is every character that is drawn rather than written. Each entry is
// one cell wide except more.
type glyphSet struct {
	ready, starting, draining, drained, degraded, lost string
	unknown                                            string

	topLeft, topRight, bottomLeft, bottomRight, horizontal, vertical string

	full, empty string   // bars
	spark       []string // rising

	cursor   string // the row or pane that keys act on
	caret    string // where typed text goes
	more     string // cut text
	up, down string // sort direction, keys
	sides    string // left and right
	dot      string // between items
}

func unicodeGlyphs() *glyphSet {
	return &glyphSet{
		ready: "●", starting: "○", draining: "◐", drained: "◇", degraded: "▲", lost: "✕", unknown: "?",
		topLeft: "╭", topRight: "╮", bottomLeft: "╰", bottomRight: "╯", horizontal: "─", vertical: "│",
		full: "█", empty: "░",
		spark:  []string{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"},
		cursor: "›", caret: "█", more: "…", up: "↑", down: "↓", sides: "← →", dot: "·",
	}
}

func asciiGlyphs() *glyphSet {
	return &glyphSet{
		ready: "*", starting: "o", draining: "~", drained: "=", degraded: "!", lost: "x", unknown: "?",
		topLeft: "+", topRight: "+", bottomLeft: "+", bottomRight: "+", horizontal: "-", vertical: "|",
		full: "#", empty: ".",
		spark:  []string{"_", ".", "-", "=", "#"},
		cursor: ">", caret: "_", more: "..", up: "^", down: "v", sides: "< >", dot: "-",
	}
}
