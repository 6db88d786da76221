package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/attach"
	"github.com/dynctl/dynctl/internal/cli/bench"
	"github.com/dynctl/dynctl/internal/cli/cache"
	"github.com/dynctl/dynctl/internal/cli/call"
	"github.com/dynctl/dynctl/internal/cli/certs"
	"github.com/dynctl/dynctl/internal/cli/chat"
	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/credentials"
	"github.com/dynctl/dynctl/internal/cli/doctor"
	"github.com/dynctl/dynctl/internal/cli/down"
	"github.com/dynctl/dynctl/internal/cli/drain"
	"github.com/dynctl/dynctl/internal/cli/events"
	"github.com/dynctl/dynctl/internal/cli/explain"
	"github.com/dynctl/dynctl/internal/cli/get"
	"github.com/dynctl/dynctl/internal/cli/help"
	"github.com/dynctl/dynctl/internal/cli/logs"
	"github.com/dynctl/dynctl/internal/cli/model"
	"github.com/dynctl/dynctl/internal/cli/plan"
	"github.com/dynctl/dynctl/internal/cli/profile"
	"github.com/dynctl/dynctl/internal/cli/set"
	"github.com/dynctl/dynctl/internal/cli/simulate"
	"github.com/dynctl/dynctl/internal/cli/top"
	"github.com/dynctl/dynctl/internal/cli/topology"
	"github.com/dynctl/dynctl/internal/cli/up"
	"github.com/dynctl/dynctl/internal/version"
)

// root makes the whole tree of commands.
func root(a *command.App) *cobra.Command {
	root := &cobra.Command{
		Use:   "dynctl <command>",
		Short: "Operate a cluster of disaggregated LLM workers",
		Annotations: map[string]string{command.ExampleAnnotation: strings.Join([]string{
			"dynctl up --prefill 2 --decode 4   # start a cluster on this machine, or change a running one",
			"dynctl top                         # watch workers, queues, KV events and routing",
			"dynctl drain worker-7              # take a worker out without losing a request",
		}, "\n")},
		Version:       version.String(),
		SilenceErrors: true, SilenceUsage: true,
		Args: cobra.ArbitraryArgs,
		RunE: command.HelpOrUnknown,
	}
	root.SetIn(a.Env.Streams.In)
	root.SetOut(a.Env.Streams.Out)
	root.SetErr(a.Env.Streams.Err)
	root.SetVersionTemplate("dynctl {{.Version}}\n")
	root.SetFlagErrorFunc(command.FlagError)

	fs := root.PersistentFlags()
	command.AddSettings(fs, "")
	fs.BoolVarP(&a.Quiet, "quiet", "q", false, "print names only, or nothing")
	fs.BoolVarP(&a.Verbose, "verbose", "v", false, "print logs, and the causes of an error one by one")
	help.AddFlag(fs)
	command.Grouped(fs, help.GroupOf(fs.Lookup("cluster")), "quiet", "verbose", "help", "config")
	root.InitDefaultVersionFlag()
	root.Flags().Lookup("version").Hidden = true // for scripts; people see the command, and the help fits a screen

	root.AddGroup(
		&cobra.Group{ID: command.GroupRun, Title: "Run a cluster"},
		&cobra.Group{ID: command.GroupLook, Title: "Look at it"},
		&cobra.Group{ID: command.GroupWorkers, Title: "Change it"},
		&cobra.Group{ID: command.GroupOther, Title: "Other"},
	)
	root.AddCommand(
		up.Command(a), down.Command(a), chat.Command(a),
		top.Command(a), get.PsCommand(a), get.Command(a, events.GetCommand(a)), topology.DiffCommand(a), logs.Command(a), events.Command(a), explain.Command(a), call.Command(a), attach.Command(a), attach.DetachCommand(a), doctor.Command(a), bench.Command(a), profile.Command(a), simulate.Command(a), plan.Command(a),
		drain.Command(a), drain.SleepCommand(a), drain.ResumeCommand(a), drain.WakeCommand(a), drain.UncordonCommand(a), drain.RestartCommand(a), topology.ScaleCommand(a), topology.RollbackCommand(a), set.Command(a), cache.Command(a),
		model.Command(a), set.ConfigCommand(a), credentials.Command(a), credentials.JoinCommand(a), certs.Command(a), versionCommand(a),
	)
	command.SuggestFor(root)
	root.AddCommand(help.Topics()...)
	help.Set(root, a)
	addCompletion(root, a)
	return root
}
