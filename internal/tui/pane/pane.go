// Package pane holds the boxes of the screen: workers, leases, queue, latency, KV events,
// router decisions, nodes.
//
// A pane is one file that implements [Pane]; the frame lists it with its key and its place.
// Panes read the [moment.Moment] they were made with and know neither the frame nor each
// other: keys reach them through their rows, their subject and their own keys.
package pane

import (
	"github.com/dynctl/dynctl/internal/tui/detail"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/moment"
	"github.com/dynctl/dynctl/internal/tui/plain"
	"github.com/dynctl/dynctl/internal/tui/table"
)

// Pane is one box of the screen. Its methods are called from one goroutine.
type Pane interface {
	// Update takes in a new snapshot.
	Update()
	// Size gives the pane its room, in cells inside its border.
	Size(width, height int)
	// Draw paints the room. The focused pane shows its cursor.
	Draw(a draw.Area, focused bool)
	// Heading returns the texts of the border: after the title, on the right, and below.
	Heading() (title, note, below string)
	// Rows returns the rows that keys move over, sort and filter; nil for a pane without rows.
	Rows() *table.List
	// Subject returns the object that keys act on: the row under the cursor, or the whole pane.
	Subject() detail.Subject
	// Keys returns the keys of this pane alone, which the key map of the frame lacks.
	Keys() []Key
	// Help explains words of the pane that its titles leave open.
	Help() []Term
	// Table is the pane as text, in full.
	Table(o plain.Options) plain.Table
}

// Key is a key of one pane.
type Key struct {
	Name   string // as Bubble Tea spells it
	Help   string
	Hint   string        // word in the footer; empty keeps it out
	Cannot func() string // why it cannot act now; empty if it can; nil: always
	Run    func()
}

// Term is a word on the screen and what it means.
type Term struct{ Word, Meaning string }

// still is the part of the panes without rows.
type still struct{ m *moment.Moment }

func (still) Update()                   {}
func (still) Size(int, int)             {}
func (still) Rows() *table.List         { return nil }
func (still) Keys() []Key               { return nil }
func (still) Help() []Term              { return nil }
func (still) Heading() (_, _, _ string) { return "", "", "" }

const (
	chooseWorker = "choose a worker in pane 1"
	noRow        = "no row under the cursor"
)
