package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/version"
)

// versionOptions print the version.
type versionOptions struct{ out *output.Printer }

func versionCommand(a *command.App) *cobra.Command {
	cmd := a.Command(command.Verb{
		Use: "version", Short: "Print the version of dynctl", Group: command.GroupOther,
		Examples: []string{
			"dynctl version",
			"dynctl version -o json   # with revision and platform",
			"dynctl ps --nodes -o wide   # versions of the agents",
		},
		Options: func(s *session.Session, _ []string) command.Runner { return versionOptions{s.Out} },
	})
	cmd.Annotations[command.RareAnnotation] = "true" // dynctl --version says it, too
	return cmd
}

func (o versionOptions) Run(context.Context) error {
	v := version.Build()
	t := output.NewTable("VERSION", "REVISION", "GO", "PLATFORM")
	t.Add(v.Version, human.OrDash(v.Revision), v.Go, v.Platform)
	return o.out.Answer(output.Answer{Data: v, Table: func(bool) *output.Table { return t }, Names: []string{v.Version}})
}
