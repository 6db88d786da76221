package output

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// Follower prints an answer again whenever it changes: on a terminal over the last one,
// elsewhere the rows that changed, in JSON one document per line.
type Follower struct {
	out   *Printer
	seen  map[string]bool // rows
	last  string
	lines int // on the terminal
}

// Follow returns a follower that has printed nothing yet.
func (p *Printer) Follow() *Follower { return &Follower{out: p, seen: map[string]bool{}} }

// Print prints what changed. The status stands below the table on a terminal; it says why an
// answer may be old.
func (f *Follower) Print(a Answer, status string) error {
	p := f.out
	var b bytes.Buffer
	switch {
	case p.NamesOnly():
		for _, n := range a.Names {
			fmt.Fprintln(&b, n)
		}
		return f.changedRows(b.String(), false)
	case p.Format == "json":
		if err := WriteJSON(&b, a.Data, false); err != nil {
			return err
		}
		return f.whole(b.String())
	case p.Format == "yaml":
		b.WriteString("---\n")
		if err := a.writeYAML(&b); err != nil {
			return err
		}
		return f.whole(b.String())
	}
	if err := a.Table(p.Format == "wide").write(&b, styleFor(p)); err != nil {
		return err
	}
	if !p.Streams.Redraws(p.Environ) {
		return f.changedRows(b.String(), true)
	}
	if status != "" {
		fmt.Fprintln(&b, p.Palette().Warn(status))
	}
	return f.redraw(b.String())
}

// whole prints a document if it differs from the last one.
func (f *Follower) whole(text string) error {
	if text == f.last {
		return nil
	}
	f.last = text
	_, err := io.WriteString(f.out.Streams.Data(), text)
	return err
}

// changedRows appends the rows that were not the last of their kind.
func (f *Follower) changedRows(text string, titled bool) error {
	now := map[string]bool{}
	for i, row := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		now[row] = true
		if row == "" || f.seen[row] || titled && i == 0 && len(f.seen) > 0 {
			continue
		}
		if _, err := fmt.Fprintln(f.out.Streams.Out, row); err != nil {
			return err
		}
	}
	f.seen = now
	return nil
}

// redraw writes over what was written before, and nothing when nothing changed.
func (f *Follower) redraw(text string) error {
	if text == f.last {
		return nil
	}
	f.last = text
	var b strings.Builder
	if f.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\x1b[J", f.lines)
	}
	_, height := f.out.Streams.Size()
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) > height-1 {
		hidden := len(lines) - height + 2
		lines = append(lines[:height-2], fmt.Sprintf("… %d more", hidden))
	}
	f.lines = len(lines)
	b.WriteString(strings.Join(lines, "\n") + "\n")
	_, err := f.out.Streams.Out.Write([]byte(b.String()))
	return err
}
