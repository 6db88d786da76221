package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/charmbracelet/lipgloss"
	"github.com/muesli/termenv"
	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/tui"
)

// topCommand is the dashboard, and the same data as text.
type topCommand struct {
	once    bool
	samples int
	size    string
	view    string
	format  string // "" when not given
}

// topFormats are the values of -o that make sense here.
func topFormats() []string { return []string{"table", "wide", "json", "yaml", "csv", "screen"} }

func (f *factory) top() *cobra.Command {
	o := &topCommand{}
	cmd := f.command(verb{
		use: "top", short: "Watch workers, queues, KV events and routing live", group: groupLook,
		long: `On a terminal: a dashboard with six panes; ? shows its keys. Elsewhere, and with -o or
--once, it prints samples: each is taken one interval after the last, so that rates
are known. JSON and YAML hold every pane, csv the pane that --view names.`,
		examples: []string{
			"dynctl top",
			"dynctl top --once -o json > snapshot.json",
			"dynctl top --samples 60 --interval 1s -o csv --view queue",
		},
		see: []string{"dynctl ps", "dynctl help keys"},
		run: o.run,
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	addSettings(fs, "top")
	fs.StringVar(&o.view, "view", "", "pane to start with, or to print ("+strings.Join(tui.Views(), ", ")+")")
	fs.BoolVar(&o.once, "once", false, "print one sample and end")
	countVar(fs, &o.samples, "samples", 0, "print this many samples and end")
	choiceVar(fs, &o.format, "output", "o", "", "print samples in this form", topFormats())
	fs.StringVar(&o.size, "size", "", "size of a printed screen, as 100x30")
	grouped(fs, "Dashboard", "interval", "theme", "ascii", "view")
	grouped(fs, "Printing", "once", "samples", "output", "size")
	for flag, words := range map[string][]string{"view": tui.Views(), "output": topFormats(), "theme": tui.Themes()} {
		_ = cmd.RegisterFlagCompletionFunc(flag, completeWords(words...)) // fails for unknown flags only
	}
	return cmd
}

func (o *topCommand) run(ctx context.Context, inv *invocation, _ []string) error {
	width, height, err := o.check(inv)
	if err != nil {
		return err
	}
	c, err := inv.connect(ctx, "cannot show the cluster")
	if err != nil {
		return err
	}
	source, err := c.Live(ctx, client.LiveOptions{Interval: inv.cfg.Top.Interval, ReadOnly: inv.readOnly()})
	if err != nil {
		return &failure{action: "cannot show cluster " + c.Name, err: err}
	}
	inv.open = append([]io.Closer{source}, inv.open...) // before its connections
	if o.printing(inv) {
		return o.print(ctx, inv, source, width, height)
	}
	if inv.cfg.Top.Theme == tui.ThemeAuto && inv.env.Streams.Out == os.Stdout {
		askBackground()
	}
	err = inv.dashboard(ctx, source, o.options(inv))
	if err != nil && ctx.Err() == nil {
		return &failure{action: "cannot show cluster " + c.Name, err: err}
	}
	return err
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
		View: o.view, Interval: inv.cfg.Top.Interval, Now: inv.env.Now,
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
