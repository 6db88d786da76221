package events

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/complete"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/fleet"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/term"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

const eventsAction = "cannot listen to events"

// Options prints what happens in a cluster.
type Options struct {
	Session *session.Session

	Follow             bool
	KV, Router, Status bool
	Encode, Actions    bool
	Planner            bool
	Workers            []string // empty: all
	For                time.Duration
}

// Command makes dynctl events.
func Command(a *command.App) *cobra.Command {
	o := &Options{}
	cmd := a.Command(command.Verb{
		Use: "events", Short: "Print KV events, routing, images, and what workers, controller and planner do", Group: command.GroupLook,
		Long: `One line for each event: stored, removed and cleared KV blocks, choices of the routers (a
second time once it is known where the prompt was computed, and a third with the time of
decoding), images that were encoded or came from a cache, workers that change, what the
controller does about them, with its reason, and what the planner decides, when that is
new. They are printed as they arrive. Events are not kept: earlier ones cannot be asked for,
and lost ones are reported as a gap. JSON is one document per line.`,
		Examples: []string{
			"dynctl events -f",
			"dynctl events -f --kv --worker worker-3",
			"dynctl events --for 1m -o json > events.jsonl",
		},
		See: []string{"dynctl top", "dynctl logs"},
		Options: func(s *session.Session, _ []string) command.Runner {
			o.Session = s
			return o
		},
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVarP(&o.Follow, "follow", "f", false, "go on until ctrl-c")
	command.Duration(fs, &o.For, "for", 5*time.Second, "how long to listen without --follow")
	fs.BoolVar(&o.KV, "kv", false, "print KV events")
	fs.BoolVar(&o.Router, "router", false, "print router decisions")
	fs.BoolVar(&o.Encode, "encode", false, "print images that workers encode")
	fs.BoolVar(&o.Status, "status", false, "print changes of workers")
	fs.BoolVar(&o.Actions, "actions", false, "print what the controller does, and why")
	fs.BoolVar(&o.Planner, "planner", false, "print changes that the planner proposes or refuses")
	fs.StringSliceVar(&o.Workers, "worker", nil, "print only what is about these workers")
	command.Grouped(fs, "Which (default: all)", "kv", "router", "encode", "status", "actions", "planner", "worker")
	_ = cmd.RegisterFlagCompletionFunc("worker", complete.Workers(a)) // fails for unknown flags only
	return cmd
}

// Run prints events as they come.
func (o *Options) Run(ctx context.Context) error {
	given := o.Session.Given
	switch {
	case o.Follow && given("for"):
		return &exit.UsageError{Text: "--follow and --for contradict each other"}
	case o.For <= 0:
		return &exit.UsageError{Text: "--for: must be greater than 0"}
	case given("worker") && len(o.Workers) == 0:
		return &exit.UsageError{Text: "--worker: no name given"}
	}
	s, err := o.open(ctx)
	if err != nil {
		return err
	}
	return o.listen(ctx, s, (&eventPrinter{out: o.Session.Out}).print)
}

// open connects to the event plane, until the session ends, and refuses workers that
// are not there.
func (o *Options) open(ctx context.Context) (*client.Stream, error) {
	c, err := o.Session.Connect(ctx, eventsAction)
	if err != nil {
		return nil, err
	}
	if len(o.Workers) > 0 {
		v, err := c.View(ctx)
		if err != nil {
			return nil, &exit.Failure{Action: eventsAction, Err: err}
		}
		for _, name := range o.Workers {
			if v.Status[name].Name == "" && v.Assignments[name].Name == "" {
				return nil, fleet.NoWorker(o.Session, "cannot listen to "+name, name, v)
			}
		}
	}
	s, err := c.Events(ctx)
	switch {
	case errors.Is(err, client.ErrNoBus):
		return nil, &exit.Failure{Action: eventsAction, Err: err, Code: exit.Unreachable, Tries: []string{"--nats-url nats://host:port"}}
	case err != nil:
		return nil, &exit.Failure{Action: eventsAction, Err: err}
	}
	o.Session.CloseFirst(s)
	return s, nil
}

// patience with an event plane that does not answer, before it is told.
const planePatience = 2 * time.Second

// listen hands over events until the time is over, or ctx ends.
func (o *Options) listen(ctx context.Context, s *client.Stream, take func(client.Event) error) error {
	var over <-chan time.Time
	if !o.Follow {
		over = time.After(o.For)
	}
	look := time.NewTicker(planePatience)
	defer look.Stop()
	printed, away, ever := 0, false, false
	for {
		select {
		case e := <-s.Events():
			ever = true
			if !o.wants(e) {
				continue
			}
			printed++
			if err := take(e); err != nil {
				return err
			}
		case <-look.C:
			ok, why := s.Connected()
			switch {
			case !ok && !away:
				o.Session.Out.Warn("nats unreachable, events are lost: %s", human.OrDash(why))
			case ok && away:
				o.Session.Out.Note("nats is back")
			}
			away = !ok
		case <-over:
			if ok, why := s.Connected(); !ok && !ever {
				return &exit.Failure{Action: eventsAction, Err: fmt.Errorf("nats unreachable: %s", human.OrDash(why)), Code: exit.Unreachable, Tries: []string{"dynctl doctor"}}
			}
			if printed == 0 {
				o.Session.Out.Note("no such event within %s; -f goes on listening", command.DurationText(o.For))
			}
			return nil
		case <-ctx.Done():
			return &exit.Stopped{Text: "stopped listening to events", Err: context.Cause(ctx)}
		}
	}
}

// wants reports whether an event was asked for. A gap belongs to the kind that it
// tore.
func (o *Options) wants(e client.Event) bool {
	kind := e.Kind
	if kind == client.EventGap {
		kind = e.Of
	}
	all := !o.KV && !o.Router && !o.Encode && !o.Status && !o.Actions && !o.Planner
	switch kind {
	case client.EventKV:
		all = all || o.KV
	case client.EventRouter:
		all = all || o.Router
	case client.EventEncode:
		all = all || o.Encode
	case client.EventWorker:
		all = all || o.Status
	case client.EventAction:
		all = all || o.Actions
	case client.EventPlanner:
		all = all || o.Planner
	default:
		return true // nobody knows what was lost
	}
	if !all || len(o.Workers) == 0 || slices.Contains(o.Workers, e.Worker) || e.Worker == "" && e.Kind == client.EventGap {
		return all
	}
	return e.Decision != nil && slices.Contains(o.Workers, e.Decision.Prefill) || e.Encoding != nil && slices.Contains(o.Workers, e.Encoding.For)
}

// eventPrinter writes events as lines.
type eventPrinter struct{ out *output.Printer }

func (p *eventPrinter) print(e client.Event) error {
	out := p.out
	w := out.Streams.Data()
	var err error
	switch {
	case out.NamesOnly():
		if e.Worker != "" {
			_, err = io.WriteString(w, term.Clean(e.Worker)+"\n")
		}
	case out.Format == "json":
		err = output.WriteJSON(w, e, false)
	case out.Format == "yaml":
		if _, err = io.WriteString(w, "---\n"); err == nil {
			err = output.WriteYAML(w, e)
		}
	default:
		_, err = io.WriteString(out.Streams.Out, p.line(e)+"\n")
	}
	return err
}

// line is an event for people: in columns on a terminal, elsewhere with tabs.
func (p *eventPrinter) line(e client.Event) string {
	worker, text := term.Clean(human.OrDash(e.Worker)), term.Clean(eventText(e))
	if !p.out.Streams.OutTTY {
		return strings.Join([]string{e.Time.UTC().Format(time.RFC3339Nano), string(e.Kind), worker, text}, "\t")
	}
	palette := p.out.Palette()
	kind := term.PadRight(string(e.Kind), 7)
	if paint := eventPaint(e, palette); paint != nil {
		kind = paint(kind)
	}
	return palette.Dim(e.Time.Local().Format("15:04:05.000")) + "  " + kind + "  " + term.PadRight(worker, 9) + "  " + text
}

// eventPaint colors the kind of an event; nil leaves it as it is.
func eventPaint(e client.Event, palette term.Palette) func(string) string {
	if e.Kind == client.EventGap {
		return palette.Warn
	}
	if e.Change == nil {
		return nil
	}
	_, paint := human.StateLook(e.Change.State, palette)
	return paint
}

// eventText says what happened.
func eventText(e client.Event) string {
	switch {
	case e.KV != nil:
		return kvText(e.KV)
	case e.Decision != nil:
		return decisionText(e.Decision)
	case e.Encoding != nil:
		return encodingText(e.Encoding)
	case e.Change != nil:
		return changeText(e.Change)
	case e.Action != nil:
		return string(e.Action.Action) + ": " + e.Action.Reason
	case e.Planner != nil:
		text := e.Planner.Decision.Why() + ": " + e.Planner.Headline()
		if e.Planner.Pool != "" {
			return cluster.PoolWords(e.Planner.Pool) + ": " + text
		}
		return text
	case e.Of != "":
		return fmt.Sprintf("%d %s events were lost", e.Missed, e.Of)
	}
	return fmt.Sprintf("%d events were lost", e.Missed)
}

// kvText is like "stored +4 9f3a… d112": blocks, the last of them, how deep it is.
func kvText(e *cluster.KVEvent) string {
	hash := func(h uint64) string { return fmt.Sprintf("%04x…", h>>48) }
	sign := "-"
	if e.Kind == cluster.KVStored {
		sign = "+"
	}
	parts := []string{string(e.Kind), sign + strconv.Itoa(e.Count)}
	switch {
	case e.Kind == cluster.KVStored && len(e.Stored) > 0:
		parts = append(parts, hash(e.Stored[len(e.Stored)-1].BlockHash), fmt.Sprintf("d%d", e.StartPosition+e.Count))
	case len(e.Removed) > 0:
		parts = append(parts, hash(e.Removed[0]))
	}
	return strings.TrimSpace(strings.Join(append(parts, e.Reason), " "))
}

// decisionText is like "r-8f21 decode, overlap 4/36 blocks, prefill worker-1".
func decisionText(d *cluster.RouterDecision) string {
	parts := []string{d.RequestID + " " + string(d.Phase)}
	if d.Prefill != "" || d.WeighsOverlap() { // else nobody has looked yet
		parts = append(parts, fmt.Sprintf("overlap %d/%d blocks", d.Overlap, d.Blocks))
	}
	if d.Chosen == "" {
		parts[0] += ", none chosen"
	}
	for _, c := range d.Candidates {
		if c.Worker == d.Chosen && d.Chosen != "" {
			parts = append(parts, fmt.Sprintf("cost %.1f of %s", c.Cost, human.Plural(len(d.Candidates), "candidate")))
		}
	}
	if d.Prefill != "" {
		text := "prefill " + d.Prefill
		if d.PrefillWay != "" {
			text += " by " + d.PrefillWay
		}
		if d.PrefillWhy != "" {
			text += " (" + d.PrefillWhy + ")"
		}
		parts = append(parts, text)
	}
	if d.DecodeNS > 0 {
		parts = append(parts, "decoded in "+millis(d.DecodeNS))
	}
	return strings.Join(parts, ", ")
}

// millis is like "612.3 ms".
func millis(ns int64) string { return fmt.Sprintf("%.1f ms", float64(ns)/float64(time.Millisecond)) }

// encodingText is like "image 3fe1a20b77c4 of r-8f21 for worker-2, 64 rows, encoded in 612.3 ms".
// Servers of other engines tell no rows, and may have encoded sounds or videos.
func encodingText(e *cluster.Encoding) string {
	what, rows, how := "image", human.Plural(e.Rows, "row")+", ", "encoded in "+millis(e.TookNS)
	if e.Rows == 0 {
		what, rows = "item", ""
	}
	if e.Cached {
		how = "computed before"
	}
	return fmt.Sprintf("%s %s of %s for %s, %s%s", what, human.OrDash(e.Content), human.OrDash(e.RequestID), human.OrDash(e.For), rows, how)
}

// changeText is like "ready -> draining finish-sequences, 3 left".
func changeText(c *client.WorkerChange) string {
	text := string(c.State)
	if c.From != "" && c.From != c.State {
		text = string(c.From) + " -> " + text
	}
	if c.Drain != "" {
		text += fmt.Sprintf(" %s, %d left", c.Drain.For(c.Role), c.Left)
	}
	if c.Reason != "" {
		text += ": " + c.Reason
	}
	return text
}
