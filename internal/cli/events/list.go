package events

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/complete"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/client"
)

// ListOptions lists what happens within a time.
type ListOptions struct {
	Session *session.Session
	Workers []string

	For   time.Duration
	Watch bool
}

// GetCommand makes dynctl get events.
func GetCommand(a *command.App) *cobra.Command {
	o := &ListOptions{}
	cmd := a.Command(command.Verb{
		Use: "events [worker...]", Short: "List the events of a few seconds: caches, routing, workers, controller, planner",
		Long: `Events are not kept: this listens for a while and lists what came, in the order of
their times. With --watch it prints them one by one until ctrl-c, as dynctl events -f does.
Names of workers choose what is about them.`,
		Examples: []string{
			"dynctl get events --for 30s",
			"dynctl get events worker-3 --watch",
			"dynctl get events --for 1m -o json > events.json",
		},
		Args: command.Names("worker", true), Complete: complete.Workers(a),
		See: []string{"dynctl events", "dynctl top"},
		Options: func(s *session.Session, args []string) command.Runner {
			o.Session, o.Workers = s, args
			return o
		},
	})
	cmd.Aliases = []string{"event"}
	command.Duration(cmd.Flags(), &o.For, "for", 5*time.Second, "how long to listen")
	cmd.Flags().BoolVarP(&o.Watch, "watch", "w", false, "go on until ctrl-c")
	return cmd
}

// Run listens for a while and lists what came.
func (o *ListOptions) Run(ctx context.Context) error {
	switch {
	case o.Watch && o.Session.Given("for"):
		return &exit.UsageError{Text: "--watch and --for contradict each other"}
	case o.For <= 0:
		return &exit.UsageError{Text: "--for: must be greater than 0"}
	}
	e := &Options{Session: o.Session, Follow: o.Watch, Workers: o.Workers, For: o.For}
	s, err := e.open(ctx)
	if err != nil {
		return err
	}
	if o.Watch {
		return e.listen(ctx, s, (&eventPrinter{out: o.Session.Out}).print)
	}
	var list []client.Event
	if err := e.listen(ctx, s, func(ev client.Event) error {
		if len(list) == maxListedEvents {
			return &exit.Failure{Action: eventsAction, Err: fmt.Errorf("more than %s events within %s", human.Commas(maxListedEvents), command.DurationText(o.For)), Tries: []string{"--for 1s", "dynctl events -f, which prints each as it comes"}}
		}
		list = append(list, ev)
		return nil
	}); err != nil {
		return err
	}
	slices.SortStableFunc(list, func(a, b client.Event) int { return a.Time.Compare(b.Time) })
	return o.Session.Out.Answer(eventsAnswer(o.Session.Out, list))
}

// maxListedEvents bounds what a list holds in memory.
const maxListedEvents = 100_000

func eventsAnswer(out *output.Printer, list []client.Event) output.Answer {
	a := output.Answer{Data: list, Table: func(bool) *output.Table { return eventsTable(out, list) }}
	if list == nil {
		a.Data = []client.Event{}
	}
	for _, e := range list {
		if e.Worker != "" && !slices.Contains(a.Names, e.Worker) {
			a.Names = append(a.Names, e.Worker)
		}
	}
	return a
}

func eventsTable(out *output.Printer, list []client.Event) *output.Table {
	t := output.NewTable("TIME", "KIND", "WORKER", "~WHAT")
	for _, e := range list {
		at := e.Time.UTC().Format(time.RFC3339Nano)
		if out.Streams.OutTTY {
			at = e.Time.Local().Format("15:04:05.000")
		}
		t.Add(at, string(e.Kind), human.OrDash(e.Worker), eventText(e))
		if paint := eventPaint(e, out.Palette()); paint != nil {
			t.Paint(1, paint)
		}
	}
	return t
}
