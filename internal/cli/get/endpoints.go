package get

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/complete"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/listing"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

func getEndpointsCommand(a *command.App) *cobra.Command {
	o := &listing.Options{}
	cmd := a.Command(command.Verb{
		Use: "endpoints [query]", Short: "List the registered endpoints of all namespaces: instance, address, worker and node",
		Long: `Without a query, all instances of all namespaces are listed. A query is a namespace, a
namespace and a component, or the name of an endpoint:

  dynamo                          all of a namespace
  dynamo.decode                   all of a component
  dyn://dynamo.decode.generate    one endpoint

Slashes separate as dots do, and the scheme may be left out. With more than three parts, the
first ones are a nested namespace. A slash at the end asks for all below: a.b/ is the nested
namespace a.b, and a.b/worker/ its component worker.

Instances that Dynamo registers under v1/instances/ or instances/ are listed, too. Those that
take requests over NATS cannot be called.`,
		Examples: []string{
			"dynctl get endpoints",
			"dynctl get endpoints dynamo.decode --watch",
			"dynctl get endpoints dynamo.decode.generate -o json | jq '.[].transport'",
		},
		Args: command.AtMostOne("query"), Complete: complete.First(complete.Endpoints(a)),
		See: []string{"dynctl call", "dynctl get leases", "dynctl get namespaces"},
		Options: func(s *session.Session, args []string) command.Runner {
			o.Session = s
			return &endpointsOptions{Options: o, query: strings.Join(args, "")}
		},
	})
	cmd.Aliases = []string{"endpoint"}
	cmd.Flags().BoolVarP(&o.Watch, "watch", "w", false, "go on, and print again what changes")
	return cmd
}

// endpointsOptions list the instances that a query asks for.
type endpointsOptions struct {
	*listing.Options
	query string
}

// Run prints the list.
func (o *endpointsOptions) Run(ctx context.Context) error {
	q, err := cluster.ParseEndpointQuery(o.query)
	if err != nil {
		return &exit.UsageError{Text: err.Error()}
	}
	o.Kind, o.Of = endpointKind(q), &q
	return o.Options.Run(ctx)
}

// endpoint is an instance with the name of its endpoint, as -o json prints it.
type endpoint struct {
	Name string `json:"name"` // dyn://namespace.component.endpoint
	cluster.Instance
}

func endpointKind(q cluster.Endpoint) listing.Kind[endpoint] {
	return listing.Kind[endpoint]{
		What: "endpoints",
		Items: func(_ context.Context, s listing.Scene) ([]endpoint, error) {
			all := make([]endpoint, 0, len(s.View.Instances))
			for _, inst := range slices.SortedFunc(slices.Values(s.View.Instances), client.CompareInstances) {
				all = append(all, endpoint{inst.Of().String(), inst})
			}
			return all, nil
		},
		Name:  func(e endpoint) string { return e.Name },
		Table: endpointsTable,
		Empty: func(s listing.Scene) string {
			if q == (cluster.Endpoint{}) {
				return "nothing is registered in cluster " + s.Cluster.Name
			}
			return "no endpoint of cluster " + s.Cluster.Name + " matches " + q.String() + "; dynctl get endpoints lists all"
		},
	}
}

func endpointsTable(s listing.Scene, items []endpoint, wide bool) *output.Table {
	titles := []string{"ENDPOINT", "INSTANCE", "~TRANSPORT", "WORKER", "NODE"}
	if wide {
		titles = append(titles, "CODEC", "INCARNATION")
	}
	t := output.NewTable(titles...)
	for _, e := range items {
		row := []string{e.Name, e.InstanceID.String(), human.OrDash(address(e.Transport, wide)), human.OrDash(e.Worker), human.OrDash(s.View.NodeName(e.Node))}
		if wide {
			row = append(row, human.OrDash(e.Codec), human.OrDash(e.Incarnation))
		}
		t.Add(row...)
	}
	return t
}

// address returns the URL of a transport: without the path, which repeats the id, unless
// there is room.
func address(t cluster.Transport, wide bool) string {
	switch {
	case t.Foreign != "" && t.Unspoken() != "":
		return "nats_tcp:" + t.Foreign + " (not supported)"
	case t.TCP == "":
		return t.HTTP
	}
	host, _, _ := strings.Cut(t.TCP, "/")
	if wide {
		host = t.TCP
	}
	return "tcp://" + host
}
