package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/lipgloss"
	"github.com/muesli/termenv"
	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui"
)

// topCommand is the dashboard, and the same data as text.
type topCommand struct {
	once    bool
	samples int
	size    string
	view    string
	worker  string // whose screen or activity is shown; "" for none
	format  string // "" when not given
	record  string
	replay  string
	speed   float64
	at      time.Duration
}

// topFormats are the values of -o that make sense here.
func topFormats() []string { return []string{"table", "wide", "json", "yaml", "csv", "screen"} }

func (f *factory) top() *cobra.Command {
	o := &topCommand{}
	cmd := f.command(verb{
		use: "top", short: "Watch workers, queues, KV events and routing live", group: groupLook,
		long: `On a terminal: a dashboard with six panes; ? shows its keys. Elsewhere, and with -o or
--once, it prints samples, each one interval after the last: JSON and YAML hold every
pane, csv that of --view, and with --worker what that worker has in hand. Samples are kept by --record and shown again by --replay.`,
		examples: []string{
			"dynctl top",
			"dynctl top --once -o json > snapshot.json",
			"dynctl top --replay run.jsonl --speed 4",
		},
		see: []string{"dynctl ps", "dynctl help keys"},
		run: o.run,
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	addSettings(fs, "top")
	fs.StringVar(&o.view, "view", "", "pane to start with, or to print: its name, or 1 to 6")
	fs.StringVar(&o.worker, "worker", "", "start with, or print, the screen of this worker")
	fs.BoolVar(&o.once, "once", false, "print one sample and end")
	countVar(fs, &o.samples, "samples", 0, "print this many samples and end")
	choiceVar(fs, &o.format, "output", "o", "", "print samples in this form", topFormats())
	fs.StringVar(&o.size, "size", "", "size of a printed screen, as 100x30")
	fs.StringVar(&o.record, "record", "", "keep every sample in this new file")
	fs.StringVar(&o.replay, "replay", "", "show this recording instead of a cluster")
	fs.Float64Var(&o.speed, "speed", 1, "how many times as fast as recorded a replay is shown")
	fs.DurationVar(&o.at, "at", 0, "begin a replay after so much of it")
	grouped(fs, "Recording", "record", "replay", "speed", "at")
	grouped(fs, "Dashboard", "interval", "theme", "ascii", "view", "worker")
	grouped(fs, "Printing", "once", "samples", "output", "size")
	rare(fs, "at")
	for flag, words := range map[string][]string{"view": tui.Views(), "output": topFormats(), "theme": tui.Themes()} {
		_ = cmd.RegisterFlagCompletionFunc(flag, completeWords(words...)) // fails for unknown flags only
	}
	_ = cmd.RegisterFlagCompletionFunc("worker", f.completeOne(workerNames))
	return cmd
}

func (o *topCommand) run(ctx context.Context, inv *invocation, _ []string) error {
	width, height, err := o.check(inv)
	if err != nil {
		return err
	}
	opts := o.options(inv)
	if o.replay != "" {
		return o.showRecording(ctx, inv, opts, width, height)
	}
	source, recorded, err := o.live(ctx, inv, &opts)
	if err != nil {
		return err
	}
	if o.printing(inv) {
		// The first snapshot has no rates, so that it only begins the first sample.
		if _, err = nextSnapshot(ctx, source); err == nil {
			err = o.print(ctx, inv, func() (cluster.Snapshot, error) { return nextSnapshot(ctx, source) }, opts, width, height)
		}
	} else {
		err = o.dashboard(ctx, inv, source, opts)
	}
	if lost := recorded(); lost != nil && err == nil {
		return &failure{action: "cannot record " + o.subject(inv), err: lost}
	}
	return err
}

// dashboard runs on the terminal until the user leaves.
func (o *topCommand) dashboard(ctx context.Context, inv *invocation, source client.Source, opts tui.Options) error {
	if inv.cfg.Top.Theme == tui.ThemeAuto && inv.env.Streams.Out == os.Stdout {
		askBackground()
	}
	err := inv.dashboard(ctx, source, opts)
	if err != nil && ctx.Err() == nil {
		return &failure{action: "cannot show " + o.subject(inv), err: err}
	}
	return err
}

// subject is what is shown.
func (o *topCommand) subject(inv *invocation) string {
	if o.replay != "" {
		return o.replay
	}
	return "cluster " + inv.cfg.Cluster
}

// askBackground finds out whether the terminal is dark or light. It asks the terminal,
// which is why this is done for the dashboard alone and before that owns the input;
// see package hush.
func askBackground() { lipgloss.SetHasDarkBackground(termenv.HasDarkBackground()) }

// printing reports whether samples are printed instead of drawing the dashboard.
func (o *topCommand) printing(inv *invocation) bool {
	return o.once || o.samples > 0 || o.format != "" || o.size != "" || !inv.env.Streams.OutTTY || !inv.env.Streams.InTTY
}

// options are those of the dashboard, and of printed screens.
func (o *topCommand) options(inv *invocation) tui.Options {
	opts := tui.Options{
		Theme: inv.cfg.Top.Theme, ASCII: inv.cfg.Top.ASCII, ReadOnly: inv.cfg.ReadOnly,
		View: o.view, Worker: o.worker, Interval: inv.cfg.Top.Interval, Now: inv.env.Now,
		In: inv.env.Streams.In, Out: inv.env.Streams.Out,
	}
	switch inv.cfg.Color {
	case "never":
		opts.Color = tui.ColorNever
	case "always":
		opts.Color = tui.ColorAlways
	}
	return opts
}

// check finds mistakes before anything is dialed.
func (o *topCommand) check(inv *invocation) (width, height int, err error) {
	if err := o.options(inv).Validate(); err != nil {
		return 0, 0, &usageError{text: err.Error()}
	}
	if n, err := strconv.Atoi(o.view); err == nil {
		o.view = tui.Views()[n-1] // panes have numbers too
	}
	if o.once && o.samples > 1 {
		return 0, 0, &usageError{text: "--once and --samples contradict each other"}
	}
	if o.samples == 0 && inv.cmd.Flags().Changed("samples") {
		return 0, 0, &usageError{text: "--samples: at least one"}
	}
	if err := o.checkRecording(inv); err != nil {
		return 0, 0, err
	}
	if o.size == "" {
		return 100, 30, nil
	}
	if o.format == "" {
		o.format = "screen"
	}
	if o.format != "screen" {
		return 0, 0, &usageError{text: "--size belongs to -o screen"}
	}
	w, h, ok := strings.Cut(o.size, "x")
	width, errW := strconv.Atoi(w)
	height, errH := strconv.Atoi(h)
	if err := errors.Join(errW, errH); !ok || err != nil || width < 1 || height < 1 || width > 1000 || height > 1000 {
		return 0, 0, &usageError{text: fmt.Sprintf("--size: %q is not a size like 100x30", o.size)}
	}
	return width, height, nil
}
