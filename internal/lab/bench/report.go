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

// RunInfo describes what was run.
type RunInfo struct {
	Command string        `json:"command"`
	Version string        `json:"version"`
	Started time.Time     `json:"started"`
	Took    time.Duration `json:"took_ns"`
	Quick   bool          `json:"quick"`
	// LoadBefore and LoadAfter are the machine's load averages of one minute, negative if
	// unknown. A load before the run means that other programs used the machine.
	LoadBefore float64 `json:"load_before"`
	LoadAfter  float64 `json:"load_after"`
	// Plots is the folder of the plots, relative to the document; empty if there is none.
	Plots string `json:"plots,omitempty"`
}

// Section is one group of measurements.
type Section struct {
	Name   string   `json:"name"` // as on the command line
	Title  string   `json:"title"`
	About  string   `json:"about"` // how it was measured
	Tables []Table  `json:"tables"`
	Plots  []Plot   `json:"plots,omitempty"`
	Fits   []Fit    `json:"fits,omitempty"`
	Notes  []string `json:"notes,omitempty"` // deviations from the plan, with reasons
	// Failures are cases without figures, or with some only, and why.
	Failures []string `json:"failures,omitempty"`
}

// Table is a set of cases that took turns.
type Table struct {
	Name    string   `json:"name"`
	About   string   `json:"about,omitempty"`
	Columns []Column `json:"columns"`
	Rows    []Row    `json:"rows"`
	// Published lists the keys of columns that were not measured here but published by
	// others.
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
	// Figures maps column keys to figures. Quantities that were not measured are absent.
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

// removeEmpty drops columns without figures.
func (t Table) removeEmpty() Table {
	t.Columns = slices.DeleteFunc(slices.Clone(t.Columns), func(c Column) bool {
		return !slices.ContainsFunc(t.Rows, func(r Row) bool { return r.Figures[c.Key].Repetitions > 0 })
	})
	return t
}
