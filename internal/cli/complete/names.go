package complete

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/fleet"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// Workers completes names of workers.
func Workers(a *command.App) cobra.CompletionFunc { return From(a, WorkerNames) }

// Nodes completes names of nodes.
func Nodes(a *command.App) cobra.CompletionFunc { return From(a, NodeNames) }

// Owners completes names of those that have leases: workers, nodes, services and programs.
func Owners(a *command.App) cobra.CompletionFunc {
	return From(a, func(v client.View) []cobra.Completion {
		out := append(WorkerNames(v), NodeNames(v)...)
		for i := range v.Programs {
			p := &v.Programs[i]
			out = append(out, cobra.CompletionWithDesc(p.Name, string(p.Kind)+" "+string(p.State())))
		}
		return out
	})
}

// Targets completes workers, and nodes with the prefix that marks them.
func Targets(a *command.App) cobra.CompletionFunc {
	return From(a, func(v client.View) []cobra.Completion {
		out := WorkerNames(v)
		for _, n := range v.Nodes {
			out = append(out, cobra.CompletionWithDesc(fleet.NodePrefix+n.Name, "all workers of the node"))
		}
		return out
	})
}

// Queues completes names of queues: that of prefills and those of the workers.
func Queues(a *command.App) cobra.CompletionFunc {
	return From(a, func(v client.View) []cobra.Completion {
		return append([]cobra.Completion{cobra.CompletionWithDesc(client.PrefillQueue, "work queue")}, WorkerNames(v)...)
	})
}

// WorkerNames are the workers of a view, with what they do.
func WorkerNames(v client.View) (out []cobra.Completion) {
	for _, w := range v.Workers() {
		out = append(out, cobra.CompletionWithDesc(w.Name, strings.TrimSpace(string(w.Role)+" "+string(w.State))))
	}
	return out
}

// NodeNames are the nodes of a view, with their hosts.
func NodeNames(v client.View) (out []cobra.Completion) {
	for _, n := range v.Nodes {
		out = append(out, cobra.CompletionWithDesc(n.Name, human.OrDash(n.Host)))
	}
	return out
}

// Pools completes the pools of the topology that have names.
func Pools(a *command.App) cobra.CompletionFunc {
	return From(a, func(v client.View) (out []cobra.Completion) {
		if v.Topology == nil {
			return nil
		}
		for _, name := range slices.Sorted(maps.Keys(v.Topology.Pools)) {
			out = append(out, cobra.CompletionWithDesc(name, v.Topology.Pools[name].Model.Name))
		}
		return out
	})
}

// Models completes the models that the cluster serves.
func Models(a *command.App) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var out []cobra.Completion
		Ask(a, cmd, func(ctx context.Context, c *client.Cluster) {
			if v, err := c.View(ctx); err == nil && v.Topology != nil {
				out = append(out, v.Topology.ModelNames()...)
			}
		})
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// Namespaces completes those that the cluster has.
func Namespaces(a *command.App) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var out []cobra.Completion
		Ask(a, cmd, func(ctx context.Context, c *client.Cluster) {
			all, err := c.Namespaces(ctx)
			if err != nil {
				return
			}
			for _, n := range all {
				what := "nothing declared"
				if n.Topology != nil {
					what = human.Shape(*n.Topology) + " " + n.Topology.Model.Name
				}
				out = append(out, cobra.CompletionWithDesc(n.Name, what))
			}
		})
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// Endpoints completes names of endpoints of all namespaces: with the scheme if the text
// begins with it, else without, since shells break words at colons.
func Endpoints(a *command.App) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, text string) ([]cobra.Completion, cobra.ShellCompDirective) {
		counts := map[string]int{}
		Ask(a, cmd, func(ctx context.Context, c *client.Cluster) {
			v, err := c.ViewOf(ctx, cluster.Endpoint{})
			if err != nil {
				return
			}
			for _, inst := range v.Instances {
				name := inst.Of().String()
				if !strings.HasPrefix(text, cluster.EndpointScheme) {
					name = strings.TrimPrefix(name, cluster.EndpointScheme)
				}
				counts[name]++
			}
		})
		var out []cobra.Completion
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			out = append(out, cobra.CompletionWithDesc(name, human.Plural(counts[name], "instance")))
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}
