package tui

import (
	"errors"
	"fmt"
	"sort"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/table"
)

// logBox shows the end of a log over the panes and follows it until it is scrolled up.
type logBox struct {
	log    *logTail
	glyphs *draw.Glyphs
	filter string
	typing *prompt // of the filter; nil: nobody types
	held   bool    // scrolled up: the line last is the lowest one
	last   int     // number of that line among all of the log
	shift  int     // cells that lines begin to the left of the box
	rows   int     // visible
}

const (
	logKeys  = "j k scroll   G follow   / filter   ← → shift   esc close"
	logShift = 20
)

func (l *logBox) press(k tea.KeyMsg) reply {
	if l.typing != nil {
		if l.typing.press(k).close {
			l.typing = nil
		}
		return reply{}
	}
	switch k.String() {
	case "esc", "q", "L":
		l.log.close()
		return reply{close: true}
	case "/":
		l.typing = &prompt{sign: "/", text: l.filter, before: l.filter, caret: l.glyphs.Caret, changed: func(text string) { l.filter = text }}
	case "j", "down":
		l.wheel(1)
	case "k", "up":
		l.wheel(-1)
	case "ctrl+d", "pgdown", " ":
		l.wheel(max(l.rows/2, 1))
	case "ctrl+u", "pgup":
		l.wheel(-max(l.rows/2, 1))
	case "g", "home":
		l.wheel(-bigMove)
	case "G", "end":
		l.held = false
	case "right", "l":
		l.shift = min(l.shift+logShift, logWidth)
	case "left", "h":
		l.shift = max(l.shift-logShift, 0)
	case "ctrl+z", "ctrl+l":
		return reply{pass: true}
	}
	return reply{}
}

// shown are the lines that pass the filter, each with its number, how many of them are at
// or above the lowest visible one, and why nothing is read now.
func (l *logBox) shown() (lines []string, numbers []int, end int, why string) {
	all, first, why := l.log.read()
	keep := table.Matcher(l.filter)
	for i, line := range all {
		if l.filter == "" || keep(line) {
			lines, numbers = append(lines, line), append(numbers, first+i)
		}
	}
	end = len(lines)
	if l.held {
		end = sort.SearchInts(numbers, l.last+1)
	}
	return lines, numbers, max(end, min(l.rows, len(lines))), why
}

func (l *logBox) wheel(n int) {
	lines, numbers, end, _ := l.shown()
	end = cells.Clamp(end+n, min(l.rows, len(lines)), len(lines))
	if l.held = end < len(lines); l.held {
		l.last = numbers[end-1]
	}
}

func (l *logBox) size(_, height int) { l.rows = max(height-3, 1) }

// line is the newest line, for screens too small for a box.
func (l *logBox) line() (text, keys string) {
	lines, _, end, why := l.shown()
	if end == 0 || why != "" {
		return l.log.name + ": " + cells.OrUnknown(why), logKeys
	}
	return lines[end-1], logKeys
}

func (l *logBox) draw(a draw.Area) {
	lines, _, end, why := l.shown()
	box := a.Popup(a.W(), a.H())
	state := "following"
	switch {
	case why != "":
		state = "not read now"
	case l.held:
		state = "held"
	}
	begin := max(end-l.rows, 0)
	note := fmt.Sprintf(" %s of %s ", lineRange(begin, end), cells.Commas(len(lines)))
	if l.filter != "" && l.typing == nil {
		note = " filter: " + l.filter + "  " + note
	}
	box.Box(l.glyphs, " log of "+l.log.name+" "+l.glyphs.Dot+" "+state+" ", note, draw.Focused)
	in := box.Sub(box.Inner())
	for y, text := range lines[begin:end] {
		text = cells.Clean(text)
		for cut := 0; cut < l.shift && text != ""; {
			_, w, rest := cells.Next(text)
			cut, text = cut+w, rest
		}
		in.Spans(0, y, in.W(), []draw.Span{draw.Plain.Text(text)})
	}
	if len(lines) == 0 {
		in.Put(0, 0, l.empty(why), draw.Dim)
	}
	bottom := in.Sub(draw.Rect{X: 0, Y: in.H() - 1, W: in.W(), H: 1})
	switch {
	case l.typing != nil:
		text, _ := l.typing.line()
		bottom.Put(0, 0, text, draw.Strong)
	case why != "":
		bottom.Spans(0, 0, bottom.W(), []draw.Span{draw.Bad.Text(why + "; it is tried again.   "), draw.KeyName.Text("esc close")})
	default:
		bottom.Put(0, 0, logKeys, draw.KeyName)
	}
}

// empty says why no line is shown.
func (l *logBox) empty(why string) string {
	switch {
	case why != "":
		return "nothing was read"
	case l.filter != "":
		return "no line passes the filter"
	}
	return "no lines yet"
}

func lineRange(begin, end int) string {
	if end == 0 {
		return "0"
	}
	return cells.Commas(begin+1) + "-" + cells.Commas(end)
}

// cannotLog says why no log can be read; name is whose.
func (m *model) cannotLog(name string) string {
	switch {
	case m.feed.play != nil:
		return "a recording holds no logs"
	case name == "":
		return "choose a worker in pane 1, or a node"
	}
	return ""
}

// logged is the worker or node whose log the key opens.
func (m *model) logged() string {
	s := m.subject()
	if s.Worker != "" {
		return s.Worker
	}
	return s.Node
}

// openLog shows the log of a worker or node.
func (m *model) openLog(name string) tea.Cmd {
	log := newLogTail(m.cmds.ctx, name)
	m.over.push(&logBox{log: log, glyphs: m.shown.Glyphs})
	return tea.Batch(m.cmds.readLog(m.source, log), m.cmds.awaitLog(log))
}

func runLogs(m *model, args []string) (tea.Cmd, error) {
	if len(args) != 1 {
		return nil, errUsage
	}
	if why := m.cannotLog(args[0]); why != "" {
		return nil, errors.New(why)
	}
	w, _ := m.shown.Worker(args[0])
	if n, _ := m.shown.Node(args[0]); w == nil && n == nil {
		return nil, errors.New(m.shown.NoWorker(args[0]))
	}
	return m.openLog(args[0]), nil
}
