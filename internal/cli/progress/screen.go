package progress

import (
	"fmt"
	"time"
)

// State is the state of a row.
type State uint8

// States of a row, with the marks of the screen.
const (
	Waiting State = iota // · its turn has not come
	Running              // a turning mark
	Done                 // ✓
	Failed               // ✗
)

// Row is one thing that is waited for.
type Row struct {
	// Item names the row; rows with the same item are the same row.
	Item  string
	State State
	// Word is the state in a word: loading, ready. Kind is what the item is.
	Word, Kind string
	// Cells are the columns of the screen, aligned over all rows.
	Cells []string
	// Detail follows the columns, then a bar for Share, then After.
	Detail string
	// Share is the completed part, 0 to 1; nil draws no bar.
	Share *float64
	After string
	// Took stands at the right edge, if above zero.
	Took time.Duration
	// More are lines below the row.
	More []string
	// Line is the row as one plain line, printed when it changes: it holds what
	// is worth a line in a log and leaves out what changes all the time.
	Line string
}

// Screen is the state of an operation at one moment. Rows stand in the order in
// which they appeared and never leave.
type Screen struct {
	Operation string // up, drain
	Subject   string // the cluster or worker it is about
	Title     string
	Rows      []Row
	Footer    string
}

// clock prints a duration as m:ss or h:mm:ss.
func clock(d time.Duration) string {
	s := int(max(d, 0).Seconds())
	if s >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	}
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

// took prints how long a step lasted: 0.4s, 12.0s, 2:08.
func took(d time.Duration) string {
	if d < 100*time.Second {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return clock(d)
}
