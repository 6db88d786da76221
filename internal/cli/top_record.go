package cli

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/client/recording"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui"
)

// live opens the cluster, and records it if that was asked for. recorded says in the end
// whether the recording is complete.
func (o *topCommand) live(ctx context.Context, inv *invocation, opts *tui.Options) (source client.Source, recorded func() error, err error) {
	c, err := inv.connect(ctx, "cannot show the cluster")
	if err != nil {
		return nil, nil, err
	}
	live, err := c.Live(ctx, client.LiveOptions{Interval: inv.cfg.Top.Interval, ReadOnly: inv.readOnly(), Inspect: o.worker})
	if err != nil {
		return nil, nil, &failure{action: "cannot show " + o.subject(inv), err: err}
	}
	if o.record == "" {
		inv.closeFirst(live)
		return live, func() error { return nil }, nil
	}
	rec, err := recording.Record(live, o.record)
	if err != nil {
		inv.closeFirst(live)
		return nil, nil, &failure{action: "cannot record " + o.subject(inv), err: err}
	}
	inv.closeFirst(rec)
	opts.Recording = o.record
	return rec, rec.Close, nil
}

// closeFirst has c closed when the command ends, before the connections that it uses.
func (inv *invocation) closeFirst(c io.Closer) { inv.open = slices.Insert(inv.open, 0, c) }

// showRecording plays a recording, or prints some of its snapshots.
func (o *topCommand) showRecording(ctx context.Context, inv *invocation, opts tui.Options, width, height int) error {
	f, err := recording.Open(o.replay)
	if err != nil {
		return &failure{action: "cannot show " + o.replay, err: err}
	}
	inv.closeFirst(f)
	if f.Cut > 0 {
		inv.note("%s ends in the middle of line %d, which is left out", o.replay, f.Cut)
	}
	first, last := f.Span()
	opts.Replay = &tui.Replay{First: first, Last: last, Speed: o.speed}
	n := f.At(o.at)
	if !o.printing(inv) {
		p := f.Play(n, o.speed)
		inv.closeFirst(p)
		return o.dashboard(ctx, inv, p, opts)
	}
	return o.print(ctx, inv, func() (cluster.Snapshot, error) {
		if n == f.Len() {
			return cluster.Snapshot{}, io.EOF
		}
		n++
		return f.Snapshot(n - 1)
	}, opts, width, height)
}

// checkRecording finds flags that contradict each other.
func (o *topCommand) checkRecording(inv *invocation) error {
	given := func(flag string) bool { return inv.cmd.Flags().Changed(flag) }
	switch {
	case o.record != "" && o.replay != "":
		return &usageError{text: "--record and --replay contradict each other"}
	case o.replay == "" && (given("speed") || given("at")):
		return &usageError{text: "--speed and --at belong to --replay"}
	case !(o.speed > 0) || o.speed > client.MaxSpeed:
		return &usageError{text: fmt.Sprintf("--speed: give a number above 0, up to %d", client.MaxSpeed)}
	case o.at < 0:
		return &usageError{text: "--at: give a duration from the beginning of the recording"}
	}
	return nil
}
