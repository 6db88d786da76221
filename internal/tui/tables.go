package tui

import (
	"io"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/detail"
	"github.com/dynctl/dynctl/internal/tui/moment"
	"github.com/dynctl/dynctl/internal/tui/plain"
)

// Table is one pane as rows of text; its name is one of [Views], or says what the inspected
// worker has in hand.
type Table = plain.Table

// TableOptions say how tables are written.
type TableOptions = plain.Options

// Tables returns the data of the chosen panes, in the order of their keys.
func Tables(s cluster.Snapshot, o TableOptions) []Table {
	if o.Location == nil {
		o.Location = time.UTC
	}
	m := moment.New(o.ASCII, o.Location)
	m.Take(s)
	var out []Table
	for _, p := range paneTable() {
		if len(o.Views) == 0 || slices.Contains(o.Views, p.name) {
			out = append(out, p.open(m).Table(o))
		}
	}
	if a := s.Activity; a != nil && len(o.Views) == 0 {
		out = append(out, detail.ActivityTables(a, o)...)
	}
	return out
}

// WriteTable writes the panes of a snapshot as text, for --once -o table. Several
// panes are parted by empty lines and each is headed by its name.
func WriteTable(w io.Writer, s cluster.Snapshot, o TableOptions) error {
	return plain.Write(w, Tables(s, o), o)
}
