package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/complete"
	"github.com/dynctl/dynctl/internal/cli/exit"
)

// addCompletion adds the command that prints completion scripts, and completes values
// of flags that all commands have.
func addCompletion(root *cobra.Command, a *command.App) {
	for flag, complete := range map[string]cobra.CompletionFunc{
		"cluster":   complete.Clusters(a),
		"namespace": complete.Namespaces(a),
		"output":    complete.Words("table", "wide", "json", "yaml", "name"),
		"color":     complete.Words("auto", "always", "never"),
	} {
		_ = root.RegisterFlagCompletionFunc(flag, complete) // fails for unknown flags only
	}
	root.SetCompletionCommandGroupID(command.GroupOther)
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() != "completion" {
			continue
		}
		c.Use, c.Short = "completion <shell>", "Print a completion script for a shell"
		c.Annotations = map[string]string{command.ImpactAnnotation: command.ImpactNone, command.RareAnnotation: "true", command.ExampleAnnotation: strings.Join([]string{
			"source <(dynctl completion bash)",
			`dynctl completion zsh > "${fpath[1]}/_dynctl"`,
			"dynctl completion fish > ~/.config/fish/completions/dynctl.fish",
		}, "\n")}
		c.Args = command.CheckArgs(nil)
		c.RunE = func(cmd *cobra.Command, _ []string) error {
			return &exit.UsageError{Text: "name a shell: bash, zsh, fish or powershell"}
		}
		for _, shell := range c.Commands() {
			shell.Args = command.CheckArgs(nil)
			shell.Annotations = map[string]string{command.ImpactAnnotation: command.ImpactNone}
		}
	}
}
