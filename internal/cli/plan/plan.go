package plan

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/declare"
	"github.com/dynctl/dynctl/internal/cli/dynlab"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/labflags"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/whatif"
	"github.com/dynctl/dynctl/internal/topofile"
)

const action = "cannot plan"

// Options are the flags of one search.
type Options struct {
	Session *session.Session
	Flags   labflags.Size
}

// Command makes dynctl plan.
func Command(a *command.App) *cobra.Command {
	o := &Options{}
	cmd := a.Command(command.Verb{
		Use: "plan --ttft <time> --itl <time>", Short: "Find the topology with the fewest devices for a load, by simulation", Group: command.GroupLook,
		Long: `Topologies of a growing number of workers are simulated, with and without prefill workers, and
with lengths up to which decode workers compute prompts themselves. Printed are those of which
none with as few devices misses the targets less. Not all are simulated: with one worker more the
search goes on from the best split before, and it ends where nothing is missed. Several --profile,
of workers of 1, 2, ... devices, let it choose engine.tensor_parallel for each role.

Without --trace the load is that of the last hour of the running cluster, without --profile the
workers are as fast as the cluster has learned, and without -f the rest of the topology is the one
that is declared there. The work is done by dynlab, which dynctl looks for beside itself and in PATH.`,
		Examples: []string{
			"dynctl plan --ttft 300ms --itl 40ms                 # for the load of the last hour",
			"dynctl plan --ttft 300ms --itl 40ms --trace trace.jsonl --profile h100.json --budget 12",
			"dynctl plan --ttft 1s --itl 25ms --save topology.yaml && dynctl up -f topology.yaml",
		},
		See: []string{"dynctl simulate", "dynctl get trace", "dynctl explain planner"},
		Options: func(s *session.Session, _ []string) command.Runner {
			o.Session = s
			return o
		},
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	o.Flags.Add(fs)
	fs.Lookup("trace").Usage += " (default: the load of the last hour)"
	fs.Lookup("profile").Usage += " (default: what the cluster has learned)"
	command.Rare(fs, "percentile", "speed", "prefill-profile")
	return cmd
}

// Run has dynlab search.
func (o *Options) Run(ctx context.Context) error {
	s := o.Session
	out, args := s.Out.Streams.Out, append([]string{"size"}, labflags.Args(s.Flags, labflags.Names(&labflags.Size{}))...)
	switch s.Out.Format {
	case "table", "wide":
	case "json":
		out, args = s.Out.Streams.Data(), append(args, "--json")
	default:
		return &exit.UsageError{Text: "a plan is printed as a table or as JSON", Tries: []string{s.Command + " -o json"}}
	}
	if o.Flags.TTFT <= 0 || o.Flags.ITL <= 0 {
		return &exit.UsageError{Text: "name the targets: --ttft and --itl", Tries: []string{"dynctl plan --ttft 500ms --itl 50ms"}}
	}
	if _, err := dynlab.Find(s, action); err != nil {
		return err
	}
	if o.Flags.Trace == "" || len(o.Flags.Profiles) == 0 {
		dir, err := os.MkdirTemp("", "dynctl-plan-")
		if err != nil {
			return &exit.Failure{Action: action, Err: err}
		}
		defer func() { _ = os.RemoveAll(dir) }() // the system clears what is left
		more, err := o.collect(ctx, dir)
		if err != nil {
			return err
		}
		args = append(args, more...)
	}
	return dynlab.Run(ctx, s, action, out, args...)
}

// collect asks the running cluster for what was not given, and writes it into a directory.
func (o *Options) collect(ctx context.Context, dir string) (args []string, err error) {
	s := o.Session
	c, v, err := s.Look(ctx, action)
	if err != nil {
		return nil, err
	}
	now, _, err := declare.Declared(ctx, c)
	if err != nil {
		return nil, &exit.Failure{Action: action, Err: err}
	}
	var wrong []error
	place := func(flag, name string, content []byte) {
		path := filepath.Join(dir, name)
		args = append(args, "--"+flag+"="+path)
		wrong = append(wrong, os.WriteFile(path, content, 0o600))
	}
	if o.Flags.Trace == "" {
		trace, err := whatif.Load(ctx, s, c, v, now.Topology.Model.Name, action)
		if err != nil {
			return nil, err
		}
		place("trace", "load.jsonl", trace)
	}
	if len(o.Flags.Profiles) == 0 {
		learned, err := whatif.Learned(ctx, c, action)
		if err != nil {
			return nil, err
		}
		place("profile", "profile.json", learned)
	}
	if o.Flags.File == "" {
		text, err := topofile.Of(now).YAML()
		wrong = append(wrong, err)
		place("file", "declared.yaml", text)
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, &exit.Failure{Action: action, Err: err}
	}
	return args, nil
}
