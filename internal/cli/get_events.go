package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/client"
)

// getEventsCommand lists what happens within a time.
type getEventsCommand struct {
	span  time.Duration
	watch bool
}

func (f *factory) getEvents() *cobra.Command {
	o := &getEventsCommand{}
	cmd := f.command(verb{
		use: "events [worker...]", short: "List the KV events, router decisions and worker changes of a few seconds",
		long: `Events are not kept: this listens for a while and lists what came, in the order of
their times. With --watch it prints them one by one until ctrl-c, as dynctl events -f does.
Names of workers choose what is about them.`,
		examples: []string{
			"dynctl get events --for 30s",
			"dynctl get events worker-3 --watch",
			"dynctl get events --for 1m -o json > events.json",
		},
		args: names("worker", true), complete: f.completeWorkers,
		see: []string{"dynctl events", "dynctl top"},
		run: o.run,
	})
	cmd.Aliases = []string{"event"}
	durationVar(cmd.Flags(), &o.span, "for", 5*time.Second, "how long to listen")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "go on until ctrl-c")
	return cmd
}

func (o *getEventsCommand) run(ctx context.Context, inv *invocation, args []string) error {
	switch {
	case o.watch && inv.cmd.Flags().Changed("for"):
		return &usageError{text: "--watch and --for contradict each other"}
	case o.span <= 0:
		return &usageError{text: "--for: must be more than nothing"}
	}
	e := &eventsCommand{follow: o.watch, workers: args, span: o.span}
	s, err := e.open(ctx, inv)
	if err != nil {
		return err
	}
	if o.watch {
		return e.listen(ctx, inv, s, (&eventPrinter{inv: inv}).print)
	}
	var list []client.Event
	if err := e.listen(ctx, inv, s, func(ev client.Event) error {
		if len(list) == maxListedEvents {
			return &failure{action: eventsAction, err: fmt.Errorf("more than %s events within %s", commas(maxListedEvents), durationFlag{&o.span}), tries: []string{"--for 1s", "dynctl events -f, which prints each as it comes"}}
		}
		list = append(list, ev)
		return nil
	}); err != nil {
		return err
	}
	slices.SortStableFunc(list, func(a, b client.Event) int { return a.Time.Compare(b.Time) })
	return inv.answer(eventsAnswer(inv, list))
}

// maxListedEvents bounds what a list holds in memory.
const maxListedEvents = 100_000

func eventsAnswer(inv *invocation, list []client.Event) answer {
	a := answer{data: list, table: func(bool) *table { return eventsTable(inv, list) }}
	if list == nil {
		a.data = []client.Event{}
	}
	for _, e := range list {
		if e.Worker != "" && !slices.Contains(a.names, e.Worker) {
			a.names = append(a.names, e.Worker)
		}
	}
	return a
}

func eventsTable(inv *invocation, list []client.Event) *table {
	t := newTable("TIME", "KIND", "WORKER", "~WHAT")
	for _, e := range list {
		at := e.Time.UTC().Format(time.RFC3339Nano)
		if inv.env.Streams.OutTTY {
			at = e.Time.Local().Format("15:04:05.000")
		}
		t.add(at, string(e.Kind), orDash(e.Worker), eventText(e))
		if paint := eventPaint(e, inv.palette()); paint != nil {
			t.paint(1, paint)
		}
	}
	return t
}
