// Package detail holds the screens that cover the panes with one thing of the cluster: a
// worker, a node, a lease, a decision of the router, the prefill queue.
//
// A screen keeps a name, not a value: each snapshot shows it anew, and once the thing is
// gone the screen says so. [Page] scrolls a screen that is higher than its room.
package detail

import (
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/moment"
)

// Screen shows one thing of the cluster.
type Screen interface {
	// Header names the thing, in the first line of the screen.
	Header() []draw.Part
	// Sections are the boxes of the screen, in one column or, where width allows, two.
	Sections(width int) [][]Section
	// Subject returns the subject of keys.
	Subject() Subject
	// Asks names the worker whose activity the screen shows; empty for none.
	Asks() string
}

// Section is a titled box of lines.
type Section struct {
	Title string
	Lines [][]draw.Span
}

// Subject is the object that keys act on: the row under the cursor, or the subject of the
// screen. Of each pair one half is empty: without an action, the other half says why.
type Subject struct {
	Title   string // of the value
	Value   any    // printed as YAML
	NoValue string

	Worker   string // to be drained and resumed
	NoWorker string

	Node string // whose agent's log can be read; only without a worker

	Open   Screen // by enter
	NoOpen string
}

// Of returns the screen of the worker or node of that name.
func Of(m *moment.Moment, name string) (Screen, bool) {
	if w, _ := m.Worker(name); w != nil {
		return Worker(m, name), true
	}
	if n, _ := m.Node(name); n != nil {
		return Node(m, name), true
	}
	return nil, false
}

// open fills in what enter opens: the screen of the worker or node of that name.
func (s *Subject) open(m *moment.Moment, name string) {
	d, ok := Of(m, name)
	if !ok {
		s.NoOpen = cells.OrUnknown(name) + " is neither a worker nor a node of the cluster"
		return
	}
	s.Open = d
}

const (
	notWorker = "this screen is not about a worker; choose one in pane 1"
	noFurther = "there is nothing more to inspect here"
)

// titled is the header of a screen that is not about a worker.
func titled(m *moment.Moment, what, name string) []draw.Part {
	return []draw.Part{{Spans: []draw.Span{
		draw.Dim.Text("dynctl top " + m.Glyphs.Cursor + " " + what + " "),
		draw.Strong.Text(cells.ClipMiddle(cells.OrUnknown(name), 40, m.Glyphs.More)),
	}}}
}

// quiet is the part of the screens that show no worker's activity.
type quiet struct{}

func (quiet) Asks() string { return "" }

// wide is the width from which sections stand in two columns.
const wide = 96

// stack puts two columns into one where they do not fit.
func stack(width int, left, right []Section) [][]Section {
	if width < wide {
		return [][]Section{append(left, right...)}
	}
	return [][]Section{left, right}
}
