package simulate

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/dynlab"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/labflags"
	"github.com/dynctl/dynctl/internal/cli/session"
)

// Options are the flags of one simulation.
type Options struct {
	Session *session.Session
	Flags   labflags.Simulate
}

// Command makes dynctl simulate.
func Command(a *command.App) *cobra.Command {
	o := &Options{}
	cmd := a.Command(command.Verb{
		Use: "simulate", Short: "Play a load on a cluster in virtual time: what topologies would do", Group: command.GroupLook,
		Long: `Engines, routing, conditional disaggregation and queues are those of dynamod; steps and
transfers take the time that a profile of the workers says. Nothing runs and nothing is changed.
The same command gives the same answer.

The cluster is what a topology file declares, with -f, or --prefill and --decode workers. The load
is a trace in the format of Mooncake, or requests at random times with --rate. The work is done by
dynlab, which dynctl looks for beside itself and in PATH.`,
		Examples: []string{
			"dynctl simulate --profile h100.json -f topology.yaml --trace trace.jsonl",
			"dynctl simulate --profile h100.json -f now.yaml --compare next.yaml --rate 20 --ttft 500ms",
			"dynctl simulate --profile h100.json --prefill 2 --decode 6 --rate 5 --duration 1h --svg day.svg",
		},
		See: []string{"dynctl bench", "dynctl diff", "dynctl explain planner"},
		Options: func(s *session.Session, _ []string) command.Runner {
			o.Session = s
			return o
		},
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	o.Flags.Add(fs)
	command.Grouped(fs, "Cluster", "file", "compare", "profile", "prefill-profile", "dynamo-profile", "prefill", "decode", "shared-devices")
	command.Grouped(fs, "Load", "trace", "speed", "repeat", "rate", "isl", "osl", "prefix-share", "prefixes", "turns", "duration", "seed")
	command.Grouped(fs, "Report", "ttft", "itl", "interval", "planner", "budget", "records", "svg")
	command.Rare(fs, "prefill-profile", "dynamo-profile", "shared-devices", "speed", "repeat", "isl", "osl", "prefix-share", "prefixes", "turns", "duration", "seed", "interval", "planner", "budget", "records", "svg")
	return cmd
}

// Run has dynlab simulate.
func (o *Options) Run(ctx context.Context) error {
	s := o.Session
	args := append([]string{"simulate"}, labflags.Args(s.Flags, labflags.Names(&labflags.Simulate{}))...)
	out := s.Out.Streams.Out
	switch s.Out.Format {
	case "table", "wide":
	case "json":
		args, out = append(args, "--json"), s.Out.Streams.Data()
	default:
		return &exit.UsageError{Text: "a simulation is printed as a table or as JSON", Tries: []string{"dynctl simulate -o json"}}
	}
	return dynlab.Run(ctx, s, "cannot simulate", out, args...)
}
