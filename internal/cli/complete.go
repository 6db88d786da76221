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
		"cluster":   f.completeClusters,
		"namespace": f.completeNamespaces,
		"output":    completeWords("table", "wide", "json", "yaml", "name"),
		"color":     completeWords("auto", "always", "never"),
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
	return f.completeLive(cmd, args, workerNames)
}

// completeNodes completes names of nodes.
func (f *factory) completeNodes(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return f.completeLive(cmd, args, nodeNames)
}

// completeOwners completes names of those that have leases: workers and nodes.
func (f *factory) completeOwners(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return f.completeLive(cmd, args, func(v client.View) []cobra.Completion { return append(workerNames(v), nodeNames(v)...) })
}

// completeQueues completes names of queues: that of prefills and those of the workers.
func (f *factory) completeQueues(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return f.completeLive(cmd, args, func(v client.View) []cobra.Completion {
		return append([]cobra.Completion{cobra.CompletionWithDesc(client.PrefillQueue, "work queue")}, workerNames(v)...)
	})
}

// workerNames are the workers of a view, with what they do.
func workerNames(v client.View) (out []cobra.Completion) {
	for _, w := range v.Workers() {
		out = append(out, cobra.CompletionWithDesc(w.Name, strings.TrimSpace(string(w.Role)+" "+string(w.State))))
	}
	return out
}

// nodeNames are the nodes of a view, with their hosts.
func nodeNames(v client.View) (out []cobra.Completion) {
	for _, n := range v.Nodes {
		out = append(out, cobra.CompletionWithDesc(n.Name, orDash(n.Host)))
	}
	return out
}

// completeLive completes names of the live cluster that args do not hold yet.
func (f *factory) completeLive(cmd *cobra.Command, args []string, all func(client.View) []cobra.Completion) ([]cobra.Completion, cobra.ShellCompDirective) {
	var out []cobra.Completion
	f.lookAt(cmd, func(v client.View) {
		for _, c := range all(v) {
			if name, _, _ := strings.Cut(c, "\t"); !slices.Contains(args, name) {
				out = append(out, c)
			}
		}
	})
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// lookAt shows the cluster to a function, if it can be reached soon.
func (f *factory) lookAt(cmd *cobra.Command, see func(client.View)) {
	f.lookAtCluster(cmd, func(_ context.Context, _ *client.Cluster, v client.View) { see(v) })
}

// lookAtCluster is lookAt for a function that asks for more; ctx ends in time.
func (f *factory) lookAtCluster(cmd *cobra.Command, see func(context.Context, *client.Cluster, client.View)) {
	f.ask(cmd, func(ctx context.Context, c *client.Cluster) {
		if v, err := c.View(ctx); err == nil {
			see(ctx, c, v)
		}
	})
}

// ask lets a function use the cluster, if it can be reached soon.
func (f *factory) ask(cmd *cobra.Command, use func(context.Context, *client.Cluster)) {
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
	if c, err := inv.connect(ctx, ""); err == nil {
		use(ctx, c)
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
