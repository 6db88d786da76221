package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/lipgloss"
	"github.com/muesli/termenv"
	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/complete"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui"
)

// Options is the dashboard, and the same data as text.
type Options struct {
	// Dashboard runs on the terminal until the user leaves.
	Dashboard func(context.Context, client.Source, tui.Options) error
	Session   *session.Session

	Once    bool
	Samples int
	Size    string
	View    string
	Worker  string // whose screen or activity is shown; "" for none
	Format  string // "" when not given
	Record  string
	Replay  string
	Speed   float64
	At      time.Duration
}

// topFormats are the values of -o that make sense here.
func topFormats() []string { return []string{"table", "wide", "json", "yaml", "csv", "screen"} }

// Command makes dynctl top.
func Command(a *command.App) *cobra.Command {
	o := &Options{Dashboard: tui.Run}
	cmd := a.Command(command.Verb{
		Use: "top", Short: "Watch workers, queues, KV events and routing live", Group: command.GroupLook,
		Long: `On a terminal: a dashboard with six panes; ? shows its keys. Elsewhere, and with -o or
--once, it prints samples, each one interval after the last: JSON and YAML hold every
pane, csv that of --view, and with --worker what that worker has in hand. Samples are kept by --record and shown again by --replay.`,
		Examples: []string{
			"dynctl top",
			"dynctl top --once -o json > snapshot.json",
			"dynctl top --replay run.jsonl --speed 4",
		},
		See: []string{"dynctl ps", "dynctl help keys"},
		Options: func(s *session.Session, _ []string) command.Runner {
			o.Session = s
			return o
		},
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	command.AddSettings(fs, "top")
	fs.StringVar(&o.View, "view", "", "pane to start with, or to print: its name, or 1 to 6")
	fs.StringVar(&o.Worker, "worker", "", "start with, or print, the screen of this worker")
	fs.BoolVar(&o.Once, "once", false, "print one sample and end")
	command.Count(fs, &o.Samples, "samples", 0, "print this many samples and end")
	command.Choice(fs, &o.Format, "output", "o", "", "print samples in this form", topFormats())
	fs.StringVar(&o.Size, "size", "", "size of a printed screen, as 100x30")
	fs.StringVar(&o.Record, "record", "", "keep every sample in this new file")
	fs.StringVar(&o.Replay, "replay", "", "show this recording instead of a cluster")
	fs.Float64Var(&o.Speed, "speed", 1, "how many times as fast as recorded a replay is shown")
	fs.DurationVar(&o.At, "at", 0, "begin a replay after so much of it")
	command.Grouped(fs, "Recording", "record", "replay", "speed", "at")
	command.Grouped(fs, "Dashboard", "interval", "theme", "ascii", "view", "worker")
	command.Grouped(fs, "Printing", "once", "samples", "output", "size")
	command.Rare(fs, "at")
	for flag, words := range map[string][]string{"view": tui.Views(), "output": topFormats(), "theme": tui.Themes()} {
		_ = cmd.RegisterFlagCompletionFunc(flag, complete.Words(words...)) // fails for unknown flags only
	}
	_ = cmd.RegisterFlagCompletionFunc("worker", complete.First(complete.From(a, complete.WorkerNames)))
	return cmd
}

// Run shows the dashboard, or prints samples.
func (o *Options) Run(ctx context.Context) error {
	width, height, err := o.check()
	if err != nil {
		return err
	}
	opts := o.options()
	if out := o.Session.Out; out.Streams.InTTY && out.Streams.OutTTY && !o.asked() && o.printing() {
		out.Note("this terminal (TERM=%s) cannot draw the dashboard; printing a sample, as --once does", o.Session.Env.Variables().Get("TERM"))
	}
	if o.Replay != "" {
		return o.showRecording(ctx, opts, width, height)
	}
	source, recorded, err := o.live(ctx, &opts)
	if err != nil {
		return err
	}
	if o.printing() {
		// The first snapshot has no rates, so that it only begins the first sample.
		if _, err = nextSnapshot(ctx, source); err == nil {
			err = o.print(ctx, func() (cluster.Snapshot, error) { return nextSnapshot(ctx, source) }, opts, width, height)
		}
	} else {
		err = o.dashboard(ctx, source, opts)
	}
	if lost := recorded(); lost != nil && err == nil {
		return &exit.Failure{Action: "cannot record " + o.subject(), Err: lost}
	}
	return err
}

// dashboard runs on the terminal until the user leaves.
func (o *Options) dashboard(ctx context.Context, source client.Source, opts tui.Options) error {
	if o.Session.Config.Top.Theme == tui.ThemeAuto && onStandardOutput(opts.Out) {
		askBackground()
	}
	err := o.Dashboard(ctx, source, opts)
	if err != nil && ctx.Err() == nil {
		return &exit.Failure{Action: "cannot show " + o.subject(), Err: err}
	}
	return err
}

// subject names the source of what the dashboard shows: the recording or the cluster.
func (o *Options) subject() string {
	if o.Replay != "" {
		return o.Replay
	}
	return "cluster " + o.Session.Config.Cluster
}

// onStandardOutput reports whether w is this process's standard output, and not one of a test.
func onStandardOutput(w io.Writer) bool {
	f, ok := w.(interface{ Fd() uintptr })
	return ok && f.Fd() == os.Stdout.Fd()
}

// askBackground finds out whether the terminal is dark or light. It asks the terminal,
// which is why this is done for the dashboard alone and before that owns the input;
// see package hush.
func askBackground() { lipgloss.SetHasDarkBackground(termenv.HasDarkBackground()) }

// printing reports whether samples are printed instead of drawing the dashboard.
func (o *Options) printing() bool {
	return o.asked() || !o.Session.Out.Streams.Screen(o.Session.Env.Variables())
}

// asked reports whether the command line asks for samples.
func (o *Options) asked() bool {
	return o.Once || o.Samples > 0 || o.Format != "" || o.Size != ""
}

// options returns the options of the dashboard and of printed screens.
func (o *Options) options() tui.Options {
	opts := tui.Options{
		Theme: o.Session.Config.Top.Theme, ASCII: o.Session.Config.Top.ASCII || o.Session.Out.Streams.ASCII, ReadOnly: o.Session.Config.ReadOnly,
		View: o.View, Worker: o.Worker, Interval: o.Session.Config.Top.Interval, Now: o.Session.Out.Now,
		In: o.Session.Out.Streams.In, Out: o.Session.Out.Streams.Data(),
	}
	switch o.Session.Config.Color {
	case "never":
		opts.Color = tui.ColorNever
	case "always":
		opts.Color = tui.ColorAlways
	}
	return opts
}

// check finds mistakes before anything is dialed.
func (o *Options) check() (width, height int, err error) {
	if err := o.options().Validate(); err != nil {
		return 0, 0, &exit.UsageError{Text: err.Error()}
	}
	if n, err := strconv.Atoi(o.View); err == nil {
		o.View = tui.Views()[n-1] // panes have numbers too
	}
	if o.Once && o.Samples > 1 {
		return 0, 0, &exit.UsageError{Text: "--once and --samples contradict each other"}
	}
	if o.Samples == 0 && o.Session.Given("samples") {
		return 0, 0, &exit.UsageError{Text: "--samples: at least one"}
	}
	if err := o.checkRecording(); err != nil {
		return 0, 0, err
	}
	if o.Size == "" && o.Session.Out.Streams.OutTTY {
		width, height = o.Session.Out.Streams.Size()
		return width, height - 1, nil // the prompt needs a line
	}
	if o.Size == "" {
		return 100, 30, nil
	}
	if o.Format == "" {
		o.Format = "screen"
	}
	if o.Format != "screen" {
		return 0, 0, &exit.UsageError{Text: "--size belongs to -o screen"}
	}
	w, h, ok := strings.Cut(o.Size, "x")
	width, errW := strconv.Atoi(w)
	height, errH := strconv.Atoi(h)
	if err := errors.Join(errW, errH); !ok || err != nil || width < 1 || height < 1 || width > 1000 || height > 1000 {
		return 0, 0, &exit.UsageError{Text: fmt.Sprintf("--size: %q is not a size like 100x30", o.Size)}
	}
	return width, height, nil
}
