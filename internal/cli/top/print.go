package top

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui"
)

// print prints samples until there are as many as were asked for, or next returns
// io.EOF.
func (o *Options) print(ctx context.Context, next func() (cluster.Snapshot, error), opts tui.Options, width, height int) error {
	total := max(o.Samples, 1)
	p := samplePrinter{w: o.Session.Out.Streams.Out, data: o.Session.Out.Streams.Data(), format: o.sampleFormat(), many: total > 1, width: width, height: height, view: o.View, options: opts, tty: o.Session.Out.Streams.OutTTY}
	for n := range total {
		s, err := next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		if err := p.print(s, n); err != nil {
			return err
		}
	}
	return nil
}

func nextSnapshot(ctx context.Context, source client.Source) (cluster.Snapshot, error) {
	select {
	case s, ok := <-source.Snapshots():
		if !ok {
			return s, errors.New("the cluster's snapshots ended")
		}
		return s, nil
	case <-ctx.Done():
		return cluster.Snapshot{}, context.Cause(ctx)
	}
}

// sampleFormat is the form of samples: that of -o, else the configured one where it
// makes sense.
func (o *Options) sampleFormat() string {
	switch {
	case o.Format != "":
		return o.Format
	case o.Session.Out.Format == "json", o.Session.Out.Format == "yaml", o.Session.Out.Format == "wide":
		return o.Session.Out.Format
	}
	return "table"
}

type samplePrinter struct {
	w             io.Writer // for people
	data          io.Writer // for programs
	format        string
	many          bool
	width, height int
	view          string
	options       tui.Options
	tty           bool
}

// print prints sample n (from 0).
func (p samplePrinter) print(s cluster.Snapshot, n int) error {
	var views []string
	if p.view != "" {
		views = []string{p.view}
	}
	switch p.format {
	case "json":
		return output.WriteJSON(p.data, s, !p.many)
	case "yaml":
		if p.many {
			if _, err := fmt.Fprintln(p.data, "---"); err != nil {
				return err
			}
		}
		return output.WriteYAML(p.data, s)
	case "csv":
		return p.csv(s, n == 0)
	case "screen":
		_, err := fmt.Fprintln(p.w, tui.Render(s, p.width, p.height, p.options))
		return err
	}
	if n > 0 {
		if _, err := fmt.Fprintln(p.w); err != nil {
			return err
		}
	}
	if p.many {
		if _, err := fmt.Fprintln(p.w, "# sample "+fmt.Sprint(n+1)+" at "+s.Time.UTC().Format(time.RFC3339)); err != nil {
			return err
		}
	}
	o := tui.TableOptions{Views: views, Terminal: p.tty, Wide: p.format == "wide", ASCII: p.options.ASCII}
	if !o.Wide { // whoever wants everything gets it
		o.Width = p.width
	}
	return tui.WriteTable(p.w, s, o)
}

// csv writes one pane, by default the workers, with the time in front.
func (p samplePrinter) csv(s cluster.Snapshot, titled bool) error {
	view := p.view
	if view == "" {
		view = "workers"
	}
	w := csv.NewWriter(p.data)
	for _, t := range tui.Tables(s, tui.TableOptions{Views: []string{view}, Wide: true, Exact: true}) {
		if titled {
			if err := w.Write(append([]string{"TIME"}, t.Columns...)); err != nil {
				return fmt.Errorf("write CSV: %w", err)
			}
		}
		for _, r := range t.Rows {
			if err := w.Write(append([]string{s.Time.UTC().Format(time.RFC3339Nano)}, r...)); err != nil {
				return fmt.Errorf("write CSV: %w", err)
			}
		}
	}
	w.Flush()
	return w.Error()
}
