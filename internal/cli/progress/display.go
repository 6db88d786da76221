package progress

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/dynctl/dynctl/internal/cli/term"
)

// Display shows the progress of one operation.
type Display interface {
	// Show takes in the newest state.
	Show(Screen)
	// Close shows the last state for good. It may be called more than once.
	Close()
}

// Modes are the values of --progress.
func Modes() []string { return []string{"auto", "tty", "plain", "json", "quiet"} }

// Options say where and how progress is shown.
type Options struct {
	Mode    string // one of Modes
	Streams term.Streams
	Env     term.Env
	Palette term.Palette
	Now     func() time.Time // default time.Now
}

// New returns a display that writes to standard error. Time counts from now on.
func New(o Options) Display {
	if o.Now == nil {
		o.Now = time.Now
	}
	base := base{w: o.Streams.Err, now: o.Now, start: o.Now()}
	mode := o.Mode
	if mode == "" || mode == "auto" {
		mode = "plain"
		if o.Streams.Animated(o.Env) {
			mode = "tty"
		}
	}
	switch mode {
	case "tty":
		return &animated{base: base, size: o.Streams.Size, palette: o.Palette}
	case "json":
		return &documents{base: base, seen: map[string]string{}}
	case "quiet":
		return nothing{}
	}
	return &lines{base: base, seen: map[string]string{}}
}

// base is the common part of all displays. It ignores write errors: a broken
// terminal must not stop the operation.
type base struct {
	w     io.Writer
	now   func() time.Time
	start time.Time
}

func (b *base) elapsed() time.Duration { return b.now().Sub(b.start) }

type nothing struct{}

func (nothing) Show(Screen) {}
func (nothing) Close()      {}

// reminder is the interval at which plain mode repeats what it waits for.
const reminder = 30 * time.Second

// lines prints one line for every change of a row.
type lines struct {
	base
	seen map[string]string // last line of each item
	last time.Time
}

func (l *lines) Show(s Screen) {
	now := l.now()
	for _, r := range s.Rows {
		if r.Line == "" || l.seen[r.Item] == r.Line {
			continue
		}
		l.seen[r.Item] = r.Line
		l.print(now, r.Line)
	}
	if l.last.IsZero() || now.Sub(l.last) < reminder {
		return
	}
	for _, r := range s.Rows {
		if r.State == Running && r.Line != "" {
			l.print(now, "still waiting: "+r.Line)
		}
	}
	l.last = now
}

func (l *lines) print(now time.Time, line string) {
	l.last = now
	s := int(now.Sub(l.start).Seconds())
	_, _ = fmt.Fprintf(l.w, "%02d:%02d %s\n", s/60, s%60, term.Clean(line)) // see base
}

func (l *lines) Close() {}

// documents prints one JSON document for every change of a row.
type documents struct {
	base
	seen map[string]string
}

// document is one change. Fields are only ever added.
type document struct {
	Time      time.Time `json:"time"`
	ElapsedMS int64     `json:"elapsed_ms"`
	Operation string    `json:"operation"`
	Subject   string    `json:"subject"`
	Item      string    `json:"item"`
	Kind      string    `json:"kind,omitempty"`
	State     string    `json:"state"`
	Phase     string    `json:"phase"` // waiting, running, done, failed
	Progress  *float64  `json:"progress"`
	Detail    string    `json:"detail,omitempty"`
}

func (d *documents) Show(s Screen) {
	enc := json.NewEncoder(d.w)
	enc.SetEscapeHTML(false)
	for _, r := range s.Rows {
		if r.Line == "" || d.seen[r.Item] == r.Line {
			continue
		}
		d.seen[r.Item] = r.Line
		_ = enc.Encode(document{ // see base
			Time: d.now().UTC(), ElapsedMS: d.elapsed().Milliseconds(), Operation: s.Operation, Subject: s.Subject,
			Item: r.Item, Kind: r.Kind, State: r.Word, Phase: r.State.phase(), Progress: r.Share, Detail: r.detail(),
		})
	}
}

func (d *documents) Close() {}

func (s State) phase() string {
	return [...]string{"waiting", "running", "done", "failed"}[s]
}

func (r Row) detail() string {
	switch {
	case r.Detail == "":
		return term.Clean(r.After)
	case r.After == "":
		return term.Clean(r.Detail)
	}
	return term.Clean(r.Detail + "  " + r.After)
}
