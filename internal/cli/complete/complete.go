package complete

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/statedir"
)

// completeTimeout bounds a completion: a user waits at a prompt.
const completeTimeout = time.Second

// Ask lets a function use the cluster, if it can be reached soon. When it cannot,
// there is nothing to complete.
func Ask(a *command.App, cmd *cobra.Command, use func(context.Context, *client.Cluster)) {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background() // cobra gives none to completions of flags
	}
	ctx, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	s, err := a.Begin(cmd)
	if err != nil {
		return
	}
	defer s.Close()
	if c, err := s.Connect(ctx, ""); err == nil {
		use(ctx, c)
	}
}

// From completes with what is found in the live cluster, in that order, without what
// args hold already.
func From(a *command.App, all func(client.View) []cobra.Completion) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var out []cobra.Completion
		Ask(a, cmd, func(ctx context.Context, c *client.Cluster) {
			v, err := c.View(ctx)
			if err != nil {
				return
			}
			for _, c := range all(v) {
				if name, _, _ := strings.Cut(c, "\t"); !slices.Contains(args, name) {
					out = append(out, c)
				}
			}
		})
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// First completes the first argument and no other.
func First(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, text string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, nil, text)
	}
}

// Words completes one of a few words.
func Words(words ...string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// Nothing keeps the shell from completing names of files.
func Nothing(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// Clusters completes the names of clusters on this machine.
func Clusters(a *command.App) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		cfg, _, err := a.Settings(cmd)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var out []cobra.Completion
		all, _ := statedir.Clusters(cfg.StateDir) // nothing to complete then
		for _, c := range all {
			out = append(out, c.Name)
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}
