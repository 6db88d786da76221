package drain

import (
	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/complete"
	"github.com/dynctl/dynctl/internal/cli/fleet"
	"github.com/dynctl/dynctl/internal/cli/session"
)

// UncordonCommand takes the drains of nodes back, by the word that kubectl has for it.
func UncordonCommand(a *command.App) *cobra.Command {
	o := &ResumeOptions{verb: "uncordon"}
	cmd := a.Command(command.Verb{
		Use: "uncordon <node>...", Short: "Let drained nodes take workers again", Group: command.GroupWorkers, Changes: true,
		Long: `The same as dynctl resume node/NAME: workers that have not left the node stay, others come
back when it has been there for a while. The command does not wait for them.`,
		Examples: []string{
			"dynctl uncordon host-2",
			"dynctl uncordon host-2 host-3 --dry-run",
			"dynctl uncordon node/host-2   # as dynctl drain names it",
		},
		Args: command.Names("node", false), Complete: complete.Nodes(a),
		See: []string{"dynctl resume", "dynctl drain", "dynctl get nodes"},
		Options: func(s *session.Session, args []string) command.Runner {
			o.Session, o.Targets = s, fleet.Nodes(args)
			return o
		},
	})
	cmd.Annotations[command.RareAnnotation] = "true" // dynctl resume does the same
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "print what would be ordered, and order nothing")
	return cmd
}
