package cli

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/client"
)

func (f *factory) getNamespaces() *cobra.Command {
	return f.getVerb(namespaceKind(), "namespace", verb{
		use: "namespaces [namespace...]", short: "List the deployments that share the cluster's etcd and NATS",
		long: "Every other command works within one namespace: -n names it.",
		examples: []string{
			"dynctl get namespaces",
			"dynctl get namespaces -o wide",
			"dynctl ps -n simulation",
		},
		complete: f.completeNamespaces,
		see:      []string{"dynctl up", "dynctl get topology"},
	})
}

// namespaceKind lists namespaces.
func namespaceKind() kind[client.Namespace] {
	return kind[client.Namespace]{
		what:  "namespaces",
		items: func(ctx context.Context, s scene) ([]client.Namespace, error) { return s.c.Namespaces(ctx) },
		name:  func(n client.Namespace) string { return n.Name },
		table: namespaceTable,
	}
}

func namespaceTable(_ scene, items []client.Namespace, wide bool) *table {
	titles := []string{"NAMESPACE", "~MODEL", ">PREFILL", ">DECODE", ">READY", ">NODES", "FRONTEND"}
	if wide {
		titles = append(titles, ">GENERATION", "~BY", "~NODE NAMES")
	}
	t := newTable(titles...)
	for _, n := range items {
		row := []string{n.Name, "-", "-", "-", strconv.Itoa(n.Ready) + "/" + strconv.Itoa(n.Workers), strconv.Itoa(len(n.Nodes)), orDash(strings.Join(n.Frontends, ","))}
		generation, by := "-", "-"
		if d := n.Topology; d != nil {
			row[1], row[2], row[3] = orDash(d.Model.Name), strconv.Itoa(d.Prefill), strconv.Itoa(d.Decode)
			generation, by = strconv.FormatInt(d.Generation, 10), orDash(d.UpdatedBy)
		}
		if wide {
			row = append(row, generation, by, orDash(strings.Join(n.Nodes, ",")))
		}
		t.add(row...)
	}
	return t
}

// completeNamespaces completes those that the cluster has.
func (f *factory) completeNamespaces(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var out []cobra.Completion
	f.ask(cmd, func(ctx context.Context, c *client.Cluster) {
		all, err := c.Namespaces(ctx)
		if err != nil {
			return
		}
		for _, n := range all {
			what := "nothing declared"
			if n.Topology != nil {
				what = shape(n.Topology.Prefill, n.Topology.Decode) + " " + n.Topology.Model.Name
			}
			out = append(out, cobra.CompletionWithDesc(n.Name, what))
		}
	})
	return out, cobra.ShellCompDirectiveNoFileComp
}
