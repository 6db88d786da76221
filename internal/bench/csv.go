package bench

import (
	"encoding/csv"
	"io"
	"strconv"
	"time"
)

// CSV writes one row for every request.
type CSV struct{ w *csv.Writer }

// NewCSV begins a file with the titles of its columns.
func NewCSV(w io.Writer) *CSV {
	c := &CSV{csv.NewWriter(w)}
	_ = c.w.Write([]string{ // Close reports it
		"conversation", "turn", "due_s", "sent_s", "first_s", "last_s", "end_s", "late_ms", "ttft_ms", "itl_ms", "tpot_ms", "e2e_ms",
		"want_input", "input", "cached", "want_output", "output", "counted", "chunks", "finish", "failure", "text",
	})
	return c
}

// Add writes the row of a request. What it has not is empty.
func (c *CSV) Add(r Record) {
	seconds := func(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 6, 64) }
	millis := func(d time.Duration, known bool) string {
		if !known || r.Kind != "" {
			return ""
		}
		return strconv.FormatFloat(ms(d), 'f', 3, 64)
	}
	itl, several := r.ITL()
	tpot, tokens := r.TPOT()
	first, last := "", ""
	if r.Chunks > 0 {
		first, last = seconds(r.First), seconds(r.Last)
	}
	_ = c.w.Write([]string{ // Close reports it
		strconv.Itoa(r.Conversation), strconv.Itoa(r.Turn), seconds(r.Due), seconds(r.Sent), first, last, seconds(r.End),
		strconv.FormatFloat(ms(r.Late()), 'f', 3, 64), millis(r.TTFT(), true), millis(itl, several), millis(tpot, tokens), millis(r.E2E(), true),
		strconv.Itoa(r.WantInput), strconv.Itoa(r.Input), strconv.Itoa(r.Cached), strconv.Itoa(r.WantOutput), strconv.Itoa(r.Output),
		strconv.FormatBool(r.Counted), strconv.Itoa(r.Chunks), r.Finish, r.Kind, r.Error,
	})
}

// Close writes what is buffered. The error is the first of all writes.
func (c *CSV) Close() error {
	c.w.Flush()
	return c.w.Error()
}
