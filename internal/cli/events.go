package cli

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

	"github.com/dynctl/dynctl/internal/cli/term"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

const eventsAction = "cannot listen to events"

// eventsCommand prints what happens in a cluster.
type eventsCommand struct {
	follow             bool
	kv, router, status bool
	actions            bool
	workers            []string // empty: all
	span               time.Duration
}

func (f *factory) events() *cobra.Command {
	o := &eventsCommand{}
	cmd := f.command(verb{
		use: "events", short: "Print KV events, router decisions, worker changes and what the controller does", group: groupLook,
		long: `One line for each event: stored, removed and cleared KV blocks, choices of the routers (a
second time once it is known where the prompt was computed), workers that change, and what
the controller does about them, with its reason. They are printed as they arrive. Events are not kept: what happened before cannot be asked for, and
what is lost on the way is told as a gap. JSON is one document per line.`,
		examples: []string{
			"dynctl events -f",
			"dynctl events -f --kv --worker worker-3",
			"dynctl events --for 1m -o json > events.jsonl",
		},
		see: []string{"dynctl top", "dynctl logs"},
		run: o.run,
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVarP(&o.follow, "follow", "f", false, "go on until ctrl-c")
	durationVar(fs, &o.span, "for", 5*time.Second, "how long to listen without --follow")
	fs.BoolVar(&o.kv, "kv", false, "print KV events")
	fs.BoolVar(&o.router, "router", false, "print router decisions")
	fs.BoolVar(&o.status, "status", false, "print changes of workers")
	fs.BoolVar(&o.actions, "actions", false, "print what the controller does, and why")
	fs.StringSliceVar(&o.workers, "worker", nil, "print only what is about these workers")
	grouped(fs, "Which (default: all)", "kv", "router", "status", "actions", "worker")
	_ = cmd.RegisterFlagCompletionFunc("worker", f.completeWorkers) // fails for unknown flags only
	return cmd
}

func (o *eventsCommand) run(ctx context.Context, inv *invocation, _ []string) error {
	given := inv.cmd.Flags().Changed
	switch {
	case o.follow && given("for"):
		return &usageError{text: "--follow and --for contradict each other"}
	case o.span <= 0:
		return &usageError{text: "--for: must be more than nothing"}
	case given("worker") && len(o.workers) == 0:
		return &usageError{text: "--worker: no name given"}
	}
	s, err := o.open(ctx, inv)
	if err != nil {
		return err
	}
	return o.listen(ctx, inv, s, (&eventPrinter{inv: inv}).print)
}

// open connects to the event plane, until the invocation ends, and refuses workers that
// are not there.
func (o *eventsCommand) open(ctx context.Context, inv *invocation) (*client.Stream, error) {
	c, err := inv.connect(ctx, eventsAction)
	if err != nil {
		return nil, err
	}
	if len(o.workers) > 0 {
		v, err := c.View(ctx)
		if err != nil {
			return nil, &failure{action: eventsAction, err: err}
		}
		for _, name := range o.workers {
			if v.Status[name].Name == "" && v.Assignments[name].Name == "" {
				return nil, inv.noWorker("cannot listen to "+name, name, v)
			}
		}
	}
	s, err := c.Events(ctx)
	switch {
	case errors.Is(err, client.ErrNoBus):
		return nil, &failure{action: eventsAction, err: err, code: exitUnreachable, tries: []string{"--nats-url nats://host:port"}}
	case err != nil:
		return nil, &failure{action: eventsAction, err: err}
	}
	inv.open = append([]io.Closer{s}, inv.open...) // before the connections that it uses
	return s, nil
}

// patience with an event plane that does not answer, before it is told.
const planePatience = 2 * time.Second

// listen hands over events until the time is over, or ctx ends.
func (o *eventsCommand) listen(ctx context.Context, inv *invocation, s *client.Stream, take func(client.Event) error) error {
	var over <-chan time.Time
	if !o.follow {
		over = time.After(o.span)
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
				inv.warn("nats unreachable, events are lost: %s", orDash(why))
			case ok && away:
				inv.note("nats is back")
			}
			away = !ok
		case <-over:
			if ok, why := s.Connected(); !ok && !ever {
				return &failure{action: eventsAction, err: fmt.Errorf("nats unreachable: %s", orDash(why)), code: exitUnreachable, tries: []string{"dynctl doctor"}}
			}
			if printed == 0 {
				inv.note("no such event within %s; -f goes on listening", durationFlag{&o.span})
			}
			return nil
		case <-ctx.Done():
			return &interrupted{text: "stopped listening to events", err: context.Cause(ctx)}
		}
	}
}

// wants reports whether an event was asked for. A gap belongs to the kind that it
// tore.
func (o *eventsCommand) wants(e client.Event) bool {
	kind := e.Kind
	if kind == client.EventGap {
		kind = e.Of
	}
	all := !o.kv && !o.router && !o.status && !o.actions
	switch kind {
	case client.EventKV:
		all = all || o.kv
	case client.EventRouter:
		all = all || o.router
	case client.EventWorker:
		all = all || o.status
	case client.EventAction:
		all = all || o.actions
	default:
		return true // nobody knows what was lost
	}
	if !all || len(o.workers) == 0 || slices.Contains(o.workers, e.Worker) || e.Worker == "" && e.Kind == client.EventGap {
		return all
	}
	return e.Decision != nil && slices.Contains(o.workers, e.Decision.Prefill)
}

// eventPrinter writes events as lines.
type eventPrinter struct{ inv *invocation }

func (p *eventPrinter) print(e client.Event) error {
	inv := p.inv
	w := inv.stdout()
	var err error
	switch {
	case inv.quiet || inv.format == "name":
		if e.Worker != "" {
			_, err = io.WriteString(w, term.Clean(e.Worker)+"\n")
		}
	case inv.format == "json":
		err = writeJSON(w, e, false)
	case inv.format == "yaml":
		if _, err = io.WriteString(w, "---\n"); err == nil {
			err = writeYAML(w, e)
		}
	default:
		_, err = io.WriteString(w, p.line(e)+"\n")
	}
	return err
}

// line is an event for people: in columns on a terminal, elsewhere with tabs.
func (p *eventPrinter) line(e client.Event) string {
	worker, text := term.Clean(orDash(e.Worker)), term.Clean(eventText(e))
	if !p.inv.env.Streams.OutTTY {
		return strings.Join([]string{e.Time.UTC().Format(time.RFC3339Nano), string(e.Kind), worker, text}, "\t")
	}
	palette := p.inv.palette()
	kind := term.PadRight(string(e.Kind), 6)
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
	_, paint := stateLook(e.Change.State, palette)
	return paint
}

// eventText says what happened.
func eventText(e client.Event) string {
	switch {
	case e.KV != nil:
		return kvText(e.KV)
	case e.Decision != nil:
		return decisionText(e.Decision)
	case e.Change != nil:
		return changeText(e.Change)
	case e.Action != nil:
		return string(e.Action.Action) + ": " + e.Action.Reason
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
			parts = append(parts, fmt.Sprintf("cost %.1f of %s", c.Cost, plural(len(d.Candidates), "candidate")))
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
	return strings.Join(parts, ", ")
}

// changeText is like "ready -> draining finish-sequences, 3 left".
func changeText(c *client.WorkerChange) string {
	text := string(c.State)
	if c.From != "" && c.From != c.State {
		text = string(c.From) + " -> " + text
	}
	if c.Drain != "" {
		text += fmt.Sprintf(" %s, %d left", c.Drain, c.Left)
	}
	if c.Reason != "" {
		text += ": " + c.Reason
	}
	return text
}
