package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cluster"
)

// explain is the verb for decisions of the cluster, and why they are as they are.
func (f *factory) explain() *cobra.Command {
	cmd := f.command(verb{
		use: "explain <what>", short: "Say why the cluster does something as it does", group: groupLook, free: true,
		long: "What is explained comes from the workers, frontends and stores themselves, as it is now.",
		examples: []string{
			"dynctl explain worker worker-3",
			"dynctl explain route                    # of the newest request",
			"dynctl explain path worker-1 worker-4",
		},
		see:  []string{"dynctl get", "dynctl doctor", "dynctl events"},
		args: cobra.ArbitraryArgs,
		run: func(_ context.Context, inv *invocation, args []string) error {
			if len(args) > 0 {
				return unknownCommand(inv.cmd, args[0])
			}
			return inv.cmd.Help()
		},
	})
	cmd.AddCommand(f.explainWorker(), f.explainNode(), f.explainLease(), f.explainRoute(), f.explainPath())
	return cmd
}

// explainPathCommand explains the NIXL path between two workers.
type explainPathCommand struct{ timeout time.Duration }

func (f *factory) explainPath() *cobra.Command {
	o := &explainPathCommand{}
	cmd := f.command(verb{
		use: "path <worker> <worker>", short: "Say how KV blocks get from one worker to another, and how fast",
		long: `Both workers are asked which transport they chose for the other, and why not each of the
others. A path is tested now: a pattern of 2 MiB is written, read back and compared, a few
times. Transports stand in order of preference. A worker that never begins transfers to the
other has no path of its own; it is told how the other reaches it.

Verdicts: chosen; not_needed, ranks below it; unsupported, cannot reach this worker; not_forced,
left out by nixl.transports; unreachable, should have; disproved, failed its test.

The exit code is 1 if there is no path in either direction, or a test failed.`,
		examples: []string{
			"dynctl explain path worker-1 worker-4",
			"dynctl explain path worker-1 worker-4 -o wide   # with the time of the test",
			"dynctl explain path worker-1 worker-4 -o json | jq '.paths[].test.write_gbps'",
		},
		args: twoWorkers, complete: f.completeWorkers,
		see: []string{"dynctl doctor", "dynctl ps"},
		run: o.run,
	})
	durationVar(cmd.Flags(), &o.timeout, "timeout", 10*time.Second, "how long to wait for answers")
	return cmd
}

// twoWorkers wants two names that differ.
func twoWorkers(_ *cobra.Command, args []string) error {
	switch {
	case len(args) != 2 || args[0] == "" || args[1] == "":
		return errors.New("name two workers")
	case args[0] == args[1]:
		return fmt.Errorf("%s is named twice", args[0])
	}
	return nil
}

// explainedPaths is the answer, as -o json prints it: both directions.
type explainedPaths struct {
	Paths []cluster.Path `json:"paths"`
}

func (o *explainPathCommand) run(ctx context.Context, inv *invocation, args []string) error {
	if o.timeout <= 0 {
		return &usageError{text: "--timeout: must be more than nothing"}
	}
	action := fmt.Sprintf("cannot explain the path between %s and %s", args[0], args[1])
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	c, err := inv.connect(ctx, action)
	if err != nil {
		return err
	}
	v, err := c.View(ctx)
	if err != nil {
		return &failure{action: action, err: err}
	}
	known := map[string]bool{}
	for _, w := range v.Workers() {
		known[w.Name] = true
	}
	for _, name := range args {
		if !known[name] {
			return &failure{action: action, err: fmt.Errorf("no worker %s in cluster %s", name, inv.cfg.Cluster), tries: []string{"dynctl ps"}}
		}
	}
	x := explainedPaths{Paths: make([]cluster.Path, 2)}
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for i, d := range [][2]string{{args[0], args[1]}, {args[1], args[0]}} {
		wg.Go(func() {
			if x.Paths[i], errs[i] = c.Path(ctx, v, d[0], d[1]); errs[i] != nil {
				x.Paths[i] = cluster.Path{From: d[0], To: d[1], Failed: errs[i].Error()}
			}
		})
	}
	wg.Wait()
	if errs[0] != nil && errs[1] != nil {
		return &failure{action: action, err: errs[0], facts: []string{errs[1].Error()}, tries: []string{"dynctl ps"}}
	}
	a := answer{data: &x, table: func(wide bool) *table { return inv.pathsTable(x.Paths, wide) }}
	works, broken := false, false
	for _, p := range x.Paths {
		works = works || p.OK()
		broken = broken || p.Transport != "" && !p.OK()
		if p.OK() {
			a.names = append(a.names, p.Transport)
		}
	}
	if err := inv.answer(a); err != nil {
		return err
	}
	if !works || broken {
		return silent{exitFailed}
	}
	return nil
}

// pathsTable has one row for each direction and transport.
func (inv *invocation) pathsTable(paths []cluster.Path, wide bool) *table {
	titles := []string{"FROM", "TO", "TRANSPORT", "VERDICT", ">WRITE", ">READ", ">LATENCY", "~WHY"}
	if wide {
		titles = append(titles, "TESTED")
	}
	t := newTable(titles...)
	palette := inv.palette()
	row := func(p cluster.Path, transport, verdict, why string, paint func(string) string) {
		write, read, rtt, at := "-", "-", "-", "-"
		if test := p.Test; test != nil && verdict == cluster.PathChosen {
			if at = test.At.Format(time.RFC3339); test.Error == "" {
				write, read, rtt = rateText(test.WriteGBps), rateText(test.ReadGBps), microText(test.RTTMicros)
			}
		}
		fields := []string{p.From, p.To, transport, verdict, write, read, rtt, why}
		if wide {
			fields = append(fields, at)
		}
		t.add(fields...)
		t.paint(3, paint)
	}
	for _, p := range paths {
		if len(p.Candidates) == 0 {
			row(p, "-", "none", noPathText(p), palette.Dim)
		}
		for _, c := range p.Candidates {
			why, paint := c.Reason, palette.Dim
			switch c.Verdict {
			case cluster.PathChosen:
				paint = palette.Good
				if bad := brokenText(p); bad != "" {
					why, paint = bad, palette.Bad
				}
			case cluster.PathUnreachable, cluster.PathDisproved:
				paint = palette.Warn
			}
			row(p, c.Transport, c.Verdict, why, paint)
		}
	}
	return t
}

// brokenText says why a path cannot be used; empty if it can.
func brokenText(p cluster.Path) string {
	switch {
	case p.Failed != "":
		return p.Failed
	case p.Test != nil && p.Test.Error != "":
		return "self-test: " + p.Test.Error
	}
	return ""
}

func noPathText(p cluster.Path) string {
	if p.Inbound != "" {
		return fmt.Sprintf("%s; %s is connected to it over %s", p.Failed, p.To, p.Inbound)
	}
	return orDash(p.Failed)
}

func rateText(gbps float64) string { return fmt.Sprintf("%.1f GB/s", gbps) }

func microText(us float64) string {
	if us >= 1000 {
		return fmt.Sprintf("%.1f ms", us/1000)
	}
	return fmt.Sprintf("%.0f µs", us)
}
