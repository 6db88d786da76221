package top

import (
	"context"
	"fmt"
	"io"

	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/whatif"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/client/recording"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui"
)

// live opens the cluster, and records it if that was asked for. recorded says in the end
// whether the recording is complete.
func (o *Options) live(ctx context.Context, opts *tui.Options) (source client.Source, recorded func() error, err error) {
	c, err := o.Session.Connect(ctx, "cannot show the cluster")
	if err != nil {
		return nil, nil, err
	}
	opts.WhatIf = func(ctx context.Context, order client.Action) (string, error) {
		return whatif.Text(ctx, o.Session, c, order)
	}
	live, err := c.Live(ctx, client.LiveOptions{Interval: o.Session.Config.Top.Interval, ReadOnly: o.Session.ReadOnly(), Inspect: o.Worker})
	if err != nil {
		return nil, nil, &exit.Failure{Action: "cannot show " + o.subject(), Err: err}
	}
	if o.Record == "" {
		o.Session.CloseFirst(live)
		return live, func() error { return nil }, nil
	}
	rec, err := recording.Record(live, o.Record)
	if err != nil {
		o.Session.CloseFirst(live)
		return nil, nil, &exit.Failure{Action: "cannot record " + o.subject(), Err: err}
	}
	o.Session.CloseFirst(rec)
	opts.Recording = o.Record
	return rec, rec.Close, nil
}

// showRecording plays a recording, or prints some of its snapshots.
func (o *Options) showRecording(ctx context.Context, opts tui.Options, width, height int) error {
	f, err := recording.Open(o.Replay)
	if err != nil {
		return &exit.Failure{Action: "cannot show " + o.Replay, Err: err}
	}
	o.Session.CloseFirst(f)
	if f.Cut > 0 {
		o.Session.Out.Note("%s ends in the middle of line %d, which is left out", o.Replay, f.Cut)
	}
	first, last := f.Span()
	opts.Replay = &tui.Replay{First: first, Last: last, Speed: o.Speed}
	n := f.At(o.At)
	if !o.printing() {
		p := f.Play(n, o.Speed)
		o.Session.CloseFirst(p)
		return o.dashboard(ctx, p, opts)
	}
	return o.print(ctx, func() (cluster.Snapshot, error) {
		if n == f.Len() {
			return cluster.Snapshot{}, io.EOF
		}
		n++
		return f.Snapshot(n - 1)
	}, opts, width, height)
}

// checkRecording finds flags that contradict each other.
func (o *Options) checkRecording() error {
	given := func(flag string) bool { return o.Session.Given(flag) }
	switch {
	case o.Record != "" && o.Replay != "":
		return &exit.UsageError{Text: "--record and --replay contradict each other"}
	case o.Replay == "" && (given("speed") || given("at")):
		return &exit.UsageError{Text: "--speed and --at belong to --replay"}
	case !(o.Speed > 0) || o.Speed > client.MaxSpeed:
		return &exit.UsageError{Text: fmt.Sprintf("--speed: give a number above 0, up to %d", client.MaxSpeed)}
	case o.At < 0:
		return &exit.UsageError{Text: "--at: give a duration from the beginning of the recording"}
	}
	return nil
}
