package bench

import (
	"slices"
	"time"
)

// Report is the result of a run.
type Report struct {
	Host     Host      `json:"host"`
	Run      RunInfo   `json:"run"`
	Sections []Section `json:"sections"`
}

// RunInfo says what was run.
type RunInfo struct {
	Command string        `json:"command"`
	Version string        `json:"version"`
	Started time.Time     `json:"started"`
	Took    time.Duration `json:"took_ns"`
	Quick   bool          `json:"quick"`
	// LoadBefore and LoadAfter are the machine's load averages of one minute, negative
	// when unknown. A load before the run means that others used the machine.
	LoadBefore float64 `json:"load_before"`
	LoadAfter  float64 `json:"load_after"`
	// Plots is the folder of the plots, as the document refers to it; empty without one.
	Plots string `json:"plots,omitempty"`
}

// Section is one group of measurements.
type Section struct {
	Name   string   `json:"name"` // as on the command line
	Title  string   `json:"title"`
	About  string   `json:"about"` // how it was measured
	Tables []Table  `json:"tables"`
	Plots  []Plot   `json:"plots,omitempty"`
	Notes  []string `json:"notes,omitempty"` // what differs from the plan, and why
}

// Table is a set of cases that took turns.
type Table struct {
	Name    string   `json:"name"`
	About   string   `json:"about,omitempty"`
	Columns []Column `json:"columns"`
	Rows    []Row    `json:"rows"`
	// Published are the keys of columns that were not measured here: figures that
	// others have published.
	Published []string `json:"published,omitempty"`
}

// Column is one quantity of all rows of a table.
type Column struct {
	Key   string `json:"key"`
	Title string `json:"title"` // with the unit
	Help  string `json:"help,omitempty"`
}

// Row is one case.
type Row struct {
	Name string `json:"name"`
	// Figures by column key; what was not measured is absent.
	Figures map[string]Figure `json:"figures"`
}

// repetitions returns the smallest and the largest number of repetitions of the
// figures in the table.
func (t Table) repetitions() (low, high int) {
	for _, r := range t.Rows {
		for key, f := range r.Figures {
			if slices.Contains(t.Published, key) {
				continue
			}
			if low == 0 || f.Repetitions < low {
				low = f.Repetitions
			}
			high = max(high, f.Repetitions)
		}
	}
	return low, high
}

// removeEmpty drops columns that no row has a figure in.
func (t Table) removeEmpty() Table {
	t.Columns = slices.DeleteFunc(slices.Clone(t.Columns), func(c Column) bool {
		return !slices.ContainsFunc(t.Rows, func(r Row) bool { return r.Figures[c.Key].Repetitions > 0 })
	})
	return t
}
