package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dynctl/dynctl/internal/config"
)

// Groups of commands in the help.
const (
	groupRun     = "run"
	groupLook    = "look"
	groupWorkers = "workers"
	groupOther   = "other"
)

// verb describes a command.
type verb struct {
	use      string // "drain <worker>..."
	short    string // one sentence
	long     string // more, for --help=all
	examples []string
	group    string
	changes  bool // it changes the cluster
	local    bool // it changes files on this machine, and not the cluster
	// free verbs need no valid configuration.
	free     bool
	args     cobra.PositionalArgs
	complete cobra.CompletionFunc
	see      []string // other commands
	run      func(ctx context.Context, inv *invocation, args []string) error
}

const (
	impactAnnotation  = "dynctl_impact"
	seeAnnotation     = "dynctl_see"
	exampleAnnotation = "dynctl_examples"
)

// command makes a cobra command from a verb.
func (f *factory) command(v verb) *cobra.Command {
	impact := "read-only"
	switch {
	case v.changes:
		impact = "changing"
	case v.local:
		impact = "local"
	}
	return &cobra.Command{
		Use: v.use, Short: v.short, Long: v.long, GroupID: v.group,
		Annotations: map[string]string{
			impactAnnotation: impact, seeAnnotation: strings.Join(v.see, ", "), exampleAnnotation: strings.Join(v.examples, "\n"),
		},
		Args:              usageArgs(v.args),
		ValidArgsFunction: v.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			if v.free {
				return v.run(cmd.Context(), &invocation{factory: f, cmd: cmd, format: "table"}, args)
			}
			inv, err := f.begin(cmd, v.changes && !dryRun(cmd) && !lists(cmd))
			if err != nil {
				return err
			}
			defer inv.close()
			return v.run(cmd.Context(), inv, args)
		},
	}
}

// dryRun reports whether a command only prints its plan.
func dryRun(cmd *cobra.Command) bool {
	on, err := cmd.Flags().GetBool("dry-run")
	return err == nil && on
}

// root makes the whole tree of commands.
func (f *factory) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "dynctl <command>",
		Short: "Operate a cluster of disaggregated LLM workers",
		Annotations: map[string]string{exampleAnnotation: strings.Join([]string{
			"dynctl up --prefill 2 --decode 4   # start a cluster on this machine, or change a running one",
			"dynctl top                         # watch workers, queues, KV events and routing",
			"dynctl drain worker-7              # take a worker out without losing a request",
		}, "\n")},
		Version:       buildVersion().Version,
		SilenceErrors: true, SilenceUsage: true,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return unknownCommand(cmd, args[0])
		},
	}
	root.SetIn(f.env.Streams.In)
	root.SetOut(f.env.Streams.Out)
	root.SetErr(f.env.Streams.Err)
	root.SetVersionTemplate("dynctl {{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{text: err.Error()} })

	fs := root.PersistentFlags()
	addSettings(fs, "")
	fs.BoolVarP(&f.quiet, "quiet", "q", false, "print names only, or nothing")
	fs.BoolVarP(&f.verbose, "verbose", "v", false, "print logs, and the causes of an error one by one")
	fs.VarPF(&helpFlag{}, "help", "h", "help for the command; --help=all for every flag, --help=<group> for one group").NoOptDefVal = helpShort
	grouped(fs, groupOf(fs.Lookup("cluster")), "quiet", "verbose", "help", "config")
	root.InitDefaultVersionFlag()
	root.Flags().Lookup("version").Hidden = true // for scripts; people see the command, and the help fits a screen

	root.AddGroup(
		&cobra.Group{ID: groupRun, Title: "Run a cluster"},
		&cobra.Group{ID: groupLook, Title: "Look at it"},
		&cobra.Group{ID: groupWorkers, Title: "Change it"},
		&cobra.Group{ID: groupOther, Title: "Other"},
	)
	root.AddCommand(
		f.up(), f.down(), f.chat(),
		f.top(), f.ps(), f.get(), f.diff(), f.logs(), f.events(), f.explain(), f.doctor(),
		f.planned(f.drain(), planDrain), f.planned(f.resume(), planResume), f.restart(), f.scale(), f.rollback(), f.set(),
		f.modelCommand(), f.configCommand(), f.credentials(), f.join(), f.version(),
	)
	root.AddCommand(f.topics()...)
	root.SetHelpFunc(f.help)
	root.SetHelpCommand(f.helpCommand())
	f.completion(root)
	return root
}

func unknownCommand(cmd *cobra.Command, name string) error {
	u := &usageError{text: fmt.Sprintf("unknown command %q", name)}
	for _, s := range near(cmd, name) {
		u.tries = append(u.tries, cmd.CommandPath()+" "+s)
	}
	return u
}

// near returns the commands below cmd that somebody may have meant.
func near(cmd *cobra.Command, name string) []string {
	cmd.SuggestionsMinimumDistance = min(max(len(name)/2, 1), 2) // edits; a short name is soon another
	return cmd.SuggestionsFor(name)
}

// usageArgs turns a complaint about arguments into a mistake in the command line.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if check == nil {
			check = noArgs
		}
		if err := check(cmd, args); err != nil {
			return &usageError{text: err.Error()}
		}
		return nil
	}
}

func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q", args[0])
	}
	return nil
}

// names refuses an empty list and names that stand twice.
func names(what string, optional bool) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 && !optional {
			return fmt.Errorf("name at least one %s", what)
		}
		seen := map[string]bool{}
		for _, a := range args {
			if seen[a] {
				return fmt.Errorf("%s is named twice", a)
			}
			seen[a] = true
		}
		return nil
	}
}

// grouped puts flags of a verb under a heading of its help.
func grouped(fs *pflag.FlagSet, group string, names ...string) {
	for _, n := range names {
		fl := fs.Lookup(n)
		if fl.Annotations == nil {
			fl.Annotations = map[string][]string{}
		}
		fl.Annotations[config.GroupAnnotation] = []string{group}
	}
}

const rareAnnotation = "dynctl_rare"

// rare keeps flags out of the short help; --help=all has them.
func rare(fs *pflag.FlagSet, names ...string) {
	for _, n := range names {
		fs.Lookup(n).Annotations[rareAnnotation] = []string{"true"}
	}
}
