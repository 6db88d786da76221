package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/statedir"
)

// completion adds the command that prints completion scripts, and completes values
// of flags that all commands have.
func (f *factory) completion(root *cobra.Command) {
	for flag, complete := range map[string]cobra.CompletionFunc{
		"cluster": f.completeClusters,
		"output":  completeWords("table", "wide", "json", "yaml", "name"),
		"color":   completeWords("auto", "always", "never"),
	} {
		_ = root.RegisterFlagCompletionFunc(flag, complete) // fails for unknown flags only
	}
	root.SetCompletionCommandGroupID(groupOther)
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() != "completion" {
			continue
		}
		c.Use, c.Short = "completion <shell>", "Print a completion script for a shell"
		c.Annotations = map[string]string{impactAnnotation: "read-only", exampleAnnotation: strings.Join([]string{
			"source <(dynctl completion bash)",
			`dynctl completion zsh > "${fpath[1]}/_dynctl"`,
			"dynctl completion fish > ~/.config/fish/completions/dynctl.fish",
		}, "\n")}
		c.Args = usageArgs(noArgs)
		c.RunE = func(cmd *cobra.Command, _ []string) error {
			return &usageError{text: "name a shell: bash, zsh, fish or powershell"}
		}
		for _, shell := range c.Commands() {
			shell.Args = usageArgs(noArgs)
			shell.Annotations = map[string]string{impactAnnotation: "read-only"}
		}
	}
}

// completeTimeout bounds what completion may cost: somebody waits at a prompt.
const completeTimeout = time.Second

// completeWorkers completes worker names from the live cluster; when that does not
// answer there is simply nothing to complete.
func (f *factory) completeWorkers(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var out []cobra.Completion
	f.lookAt(cmd, func(v client.View) {
		for _, w := range v.Workers() {
			if !slices.Contains(args, w.Name) {
				out = append(out, cobra.CompletionWithDesc(w.Name, strings.TrimSpace(string(w.Role)+" "+string(w.State))))
			}
		}
	})
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// lookAt shows the cluster to a function, if it can be reached soon.
func (f *factory) lookAt(cmd *cobra.Command, see func(client.View)) {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background() // cobra gives none to completions of flags
	}
	ctx, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	inv, err := f.begin(cmd, false)
	if err != nil {
		return
	}
	defer inv.close()
	c, err := inv.connect(ctx, "")
	if err != nil {
		return
	}
	if v, err := c.View(ctx); err == nil {
		see(v)
	}
}

// completeClusters completes the names of clusters on this machine.
func (f *factory) completeClusters(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	cfg, _, err := f.settings(cmd)
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

// completeWords completes one of a few words.
func completeWords(words ...string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}
