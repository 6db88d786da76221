package get

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/complete"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/listing"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/client"
)

func getNamespacesCommand(a *command.App) *cobra.Command {
	return kindCommand(a, namespaceKind(), "namespace", command.Verb{
		Use: "namespaces [namespace...]", Short: "List the deployments that share the cluster's store and NATS",
		Long: "Every other command works within one namespace: -n names it.",
		Examples: []string{
			"dynctl get namespaces",
			"dynctl get namespaces -o wide",
			"dynctl ps -n simulation",
		},
		Complete: complete.Namespaces(a),
		See:      []string{"dynctl up", "dynctl get topology"},
	})
}

// namespaceKind lists namespaces.
func namespaceKind() listing.Kind[client.Namespace] {
	return listing.Kind[client.Namespace]{
		What: "namespaces",
		Items: func(ctx context.Context, s listing.Scene) ([]client.Namespace, error) {
			return s.Cluster.Namespaces(ctx)
		},
		Name:  func(n client.Namespace) string { return n.Name },
		Table: namespaceTable,
	}
}

func namespaceTable(_ listing.Scene, items []client.Namespace, wide bool) *output.Table {
	titles := []string{"NAMESPACE", "~MODEL", ">PREFILL", ">DECODE", ">ENCODE", ">READY", ">NODES", "FRONTEND"}
	if wide {
		titles = append(titles, ">GENERATION", "~BY", "~NODE NAMES")
	}
	t := output.NewTable(titles...)
	for _, n := range items {
		row := []string{n.Name, "-", "-", "-", "-", strconv.Itoa(n.Ready) + "/" + strconv.Itoa(n.Workers), strconv.Itoa(len(n.Nodes)), human.OrDash(strings.Join(n.Frontends, ","))}
		generation, by := "-", "-"
		if d := n.Topology; d != nil {
			row[1], row[2], row[3], row[4] = human.OrDash(d.Model.Name), strconv.Itoa(d.Prefill), strconv.Itoa(d.Decode), strconv.Itoa(d.Encode)
			generation, by = strconv.FormatInt(d.Generation, 10), human.OrDash(d.UpdatedBy)
		}
		if wide {
			row = append(row, generation, by, human.OrDash(strings.Join(n.Nodes, ",")))
		}
		t.Add(row...)
	}
	return t
}
