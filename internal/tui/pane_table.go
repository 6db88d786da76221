package tui

import (
	"strconv"

	"github.com/dynctl/dynctl/internal/tui/layout"
	"github.com/dynctl/dynctl/internal/tui/moment"
	"github.com/dynctl/dynctl/internal/tui/pane"
)

// paneSpec is a pane in the table of panes.
type paneSpec struct {
	slot  layout.Slot // panes in layout.Cover cover the others
	key   string      // chooses the pane
	name  string      // for --view and the command line
	title string
	about string // what a pane that covers the others is, for the help
	open  func(m *moment.Moment) pane.Pane
}

// paneTable is every pane, in the order in which tab goes through them. To add one, write
// its file in package pane and its line here.
func paneTable() []paneSpec {
	return []paneSpec{
		{layout.Top, "1", "workers", "workers", "", pane.Workers},
		{layout.Left, "2", "leases", "leases", "", pane.Leases},
		{layout.Middle, "3", "queue", "queue depth", "", pane.Queue},
		{layout.Right, "4", "latency", "latency", "", pane.Latency},
		{layout.BottomLeft, "5", "events", "KV events", "", pane.Events},
		{layout.BottomRight, "6", "router", "router decisions", "", pane.Decisions},
		{layout.Cover, "n", "nodes", "nodes", "nodes, with their devices", pane.Nodes},
		{layout.Cover, "i", "index", "KV index", "what the frontends know of the KV caches, by worker", pane.Caches},
		{layout.Cover, "P", "planner", "planner decisions", "how many workers the planner wants, and why", pane.Planner},
	}
}

// Views lists the values of [Options.View], in the order of their keys.
func Views() []string { return paneNames(paneTable()) }

func paneNames(specs []paneSpec) []string {
	var names []string
	for _, s := range specs {
		names = append(names, s.name)
	}
	return names
}

func paneNamed(specs []paneSpec, name string) (int, bool) {
	for i, s := range specs {
		if name == s.name || name == strconv.Itoa(i+1) {
			return i, true
		}
	}
	return 0, false
}
