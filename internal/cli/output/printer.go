package output

import (
	"fmt"
	"io"
	"time"

	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/progress"
	"github.com/dynctl/dynctl/internal/cli/term"
)

// Printer writes what a command says: its answer to standard output in the form that was
// asked for, everything else to standard error.
type Printer struct {
	Streams term.Streams
	Environ term.Env
	Now     func() time.Time
	Format  string // of answers: table, wide, json, yaml or name
	Color   string // auto, always or never
	Quiet   bool   // names only, or nothing
	Verbose bool   // with logs and the causes of errors
}

// Answer writes an answer to standard output in the form that was asked for.
func (p *Printer) Answer(a Answer) error {
	w := p.Streams.Data()
	switch {
	case p.NamesOnly():
		for _, n := range a.Names {
			if _, err := fmt.Fprintln(w, n); err != nil {
				return err
			}
		}
		return nil
	case p.Format == "json":
		return WriteJSON(w, a.Data, true)
	case p.Format == "yaml":
		return a.writeYAML(w)
	case a.Table == nil:
		_, err := io.WriteString(p.Streams.Out, a.Text)
		return err
	}
	return a.Table(p.Format == "wide").write(p.Streams.Out, styleFor(p))
}

// NamesOnly reports whether of an answer only the names are printed.
func (p *Printer) NamesOnly() bool { return p.Quiet || p.Format == "name" }

// Prose reports whether answers are sentences for people rather than documents.
func (p *Printer) Prose() bool {
	return !p.Quiet && (p.Format == "table" || p.Format == "wide")
}

// Note says something beside the answer; -q hides it.
func (p *Printer) Note(format string, args ...any) {
	if !p.Quiet {
		p.Warn("note: "+format, args...)
	}
}

// Warn is a note that -q does not hide.
func (p *Printer) Warn(format string, args ...any) { p.Tell("dynctl: "+format, args...) }

// Tell writes one line to standard error.
func (p *Printer) Tell(format string, args ...any) {
	_, _ = io.WriteString(p.Streams.Err, term.Clean(fmt.Sprintf(format, args...))+"\n") // nobody is left to tell
}

// Say prints one line of an answer. Commands that changed something continue when no process
// reads it any longer.
func (p *Printer) Say(line string) {
	_, _ = io.WriteString(p.Streams.Out, line+"\n")
}

// Report tells an error that does not end the command.
func (p *Printer) Report(err error) {
	exit.Write(p.Streams.Err, err, exit.Command{}, p.Verbose)
}

// Beside returns the stream for lines below a table. Programs read the table, so they get it alone.
func (p *Printer) Beside() io.Writer {
	if p.Streams.OutTTY {
		return p.Streams.Out
	}
	return p.Streams.Err
}

// Palette has the colors of answers.
func (p *Printer) Palette() term.Palette {
	return term.Palette{On: term.Colored(p.Color, p.Streams.OutTTY, p.Environ)}
}

// ErrPalette has the colors of what goes to standard error.
func (p *Printer) ErrPalette() term.Palette {
	return term.Palette{On: term.Colored(p.Color, p.Streams.ErrTTY, p.Environ)}
}

// Progress returns a display for an operation; mode is the value of --progress.
func (p *Printer) Progress(mode string) progress.Display {
	switch {
	case p.Quiet && mode == "auto":
		mode = "quiet"
	case p.Verbose && mode == "auto":
		mode = "plain" // logs would run through the frames
	}
	return progress.New(progress.Options{Mode: mode, Streams: p.Streams, Env: p.Environ, Now: p.Now, Palette: p.ErrPalette()})
}
