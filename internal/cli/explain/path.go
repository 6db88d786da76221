package explain

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/complete"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cluster"
)

// Command is the verb for decisions of the cluster, and why they are as they are.
func Command(a *command.App) *cobra.Command {
	return command.Group(command.Verb{
		Use: "explain <what>", Short: "Explain what the cluster does, and why", Group: command.GroupLook,
		Long: "What is explained comes from the workers, frontends and stores themselves, as it is now.",
		Examples: []string{
			"dynctl explain worker worker-3",
			"dynctl explain route                    # of the newest request",
			"dynctl explain path worker-1 worker-4",
		},
		See: []string{"dynctl get", "dynctl doctor", "dynctl events"},
	}, workerCommand(a), nodeCommand(a), leaseCommand(a), routeCommand(a), prefixCommand(a), pathCommand(a), plannerCommand(a))
}

// PathOptions explain the NIXL path between two workers.
type PathOptions struct {
	Session *session.Session
	Workers []string // two names that differ
	Timeout time.Duration
}

func pathCommand(a *command.App) *cobra.Command {
	o := &PathOptions{}
	cmd := a.Command(command.Verb{
		Use: "path <worker> <worker>", Short: "Say how KV blocks get from one worker to another, and how fast",
		Long: `Both workers are asked which transport they chose for the other, and why not each of the
others. A path is tested now: a pattern of 2 MiB is written, read back and compared, a few
times. Transports stand in order of preference. A worker that never begins transfers to the
other has no path of its own; it is told how the other reaches it.

Verdicts: chosen; not_needed, ranks below it; unsupported, cannot reach this worker; not_forced,
left out by nixl.transports; unreachable, should have; disproved, failed its test.

The exit code is 1 if there is no path in either direction, or a test failed.`,
		Examples: []string{
			"dynctl explain path worker-1 worker-4",
			"dynctl explain path worker-1 worker-4 -o wide   # with the time of the test",
			"dynctl explain path worker-1 worker-4 -o json | jq '.paths[].test.write_gbps'",
		},
		Args: twoWorkers, Complete: complete.Workers(a),
		See: []string{"dynctl doctor", "dynctl ps"},
		Options: func(s *session.Session, args []string) command.Runner {
			o.Session, o.Workers = s, args
			return o
		},
	})
	command.Duration(cmd.Flags(), &o.Timeout, "timeout", 10*time.Second, "how long to wait for answers")
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

// Paths is the answer, as -o json prints it: both directions.
type Paths struct {
	Paths []cluster.Path `json:"paths"`
}

// Run has both directions tested and prints them.
func (o *PathOptions) Run(ctx context.Context) error {
	args := o.Workers
	if o.Timeout <= 0 {
		return &exit.UsageError{Text: "--timeout: must be greater than 0"}
	}
	action := fmt.Sprintf("cannot explain the path between %s and %s", args[0], args[1])
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	c, err := o.Session.Connect(ctx, action)
	if err != nil {
		return err
	}
	v, err := c.View(ctx)
	if err != nil {
		return &exit.Failure{Action: action, Err: err}
	}
	known := map[string]bool{}
	for _, w := range v.Workers() {
		known[w.Name] = true
	}
	for _, name := range args {
		if !known[name] {
			return &exit.Failure{Action: action, Err: fmt.Errorf("no worker %s in cluster %s", name, o.Session.Config.Cluster), Tries: []string{"dynctl ps"}}
		}
	}
	x := Paths{Paths: make([]cluster.Path, 2)}
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
		return &exit.Failure{Action: action, Err: errs[0], Facts: []string{errs[1].Error()}, Tries: []string{"dynctl ps"}}
	}
	a := output.Answer{Data: &x, Table: func(wide bool) *output.Table { return pathsTable(o.Session, x.Paths, wide) }}
	works, broken := false, false
	for _, p := range x.Paths {
		works = works || p.OK()
		broken = broken || p.Transport != "" && !p.OK()
		if p.OK() {
			a.Names = append(a.Names, p.Transport)
		}
	}
	if err := o.Session.Out.Answer(a); err != nil {
		return err
	}
	if !works || broken {
		return exit.Silent{Code: exit.Failed}
	}
	return nil
}

// pathsTable has one row for each direction and transport.
func pathsTable(s *session.Session, paths []cluster.Path, wide bool) *output.Table {
	titles := []string{"FROM", "TO", "TRANSPORT", "VERDICT", ">WRITE", ">READ", ">LATENCY", "~WHY"}
	if wide {
		titles = append(titles, "TESTED")
	}
	t := output.NewTable(titles...)
	palette := s.Out.Palette()
	row := func(p cluster.Path, transport, verdict, why string, paint func(string) string) {
		write, read, rtt, at := "-", "-", "-", "-"
		if test := p.Test; test != nil && verdict == cluster.PathChosen {
			if at = test.At.Format(time.RFC3339); test.Error == "" {
				write, read, rtt = human.Rate(test.WriteGBps), human.Rate(test.ReadGBps), microText(test.RTTMicros)
			}
		}
		fields := []string{p.From, p.To, transport, verdict, write, read, rtt, why}
		if wide {
			fields = append(fields, at)
		}
		t.Add(fields...)
		t.Paint(3, paint)
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
				if bad := human.BrokenPath(p); bad != "" {
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

func noPathText(p cluster.Path) string {
	if p.Inbound != "" {
		return fmt.Sprintf("%s; %s is connected to it over %s", p.Failed, p.To, p.Inbound)
	}
	return human.OrDash(p.Failed)
}

func microText(us float64) string {
	if us >= 1000 {
		return fmt.Sprintf("%.1f ms", us/1000)
	}
	return fmt.Sprintf("%.0f µs", us)
}
