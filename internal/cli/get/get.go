package get

import (
	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/complete"
	"github.com/dynctl/dynctl/internal/cli/listing"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/settings"
)

// Command is the verb that lists: workers, nodes and whatever else a cluster is made of.
func Command(a *command.App, events *cobra.Command) *cobra.Command {
	return command.Group(command.Verb{
		Use: "get <what> [name...]", Short: "List workers, nodes, endpoints, leases, queues, settings and what else a cluster has", Group: command.GroupLook,
		Long: `Each kind has the same forms: a table (-o wide has more columns), json, yaml and names.
--watch goes on: on a terminal the list is redrawn, elsewhere rows that changed follow, and
json is one document per line. Names choose some; if one of several is not there the exit
code is 5, and 1 if none is.`,
		Examples: []string{
			"dynctl get workers",
			"dynctl get leases worker-3 --watch",
			"dynctl get queues -o json",
		},
		See: []string{"dynctl ps", "dynctl explain", "dynctl top"},
	}, getNamespacesCommand(a), getWorkersCommand(a), getNodesCommand(a), getLeasesCommand(a), getLocksCommand(a), getQueuesCommand(a), getIndexCommand(a), getEndpointsCommand(a), getTopologyCommand(a), events, getTraceCommand(a), getProfileCommand(a), getConfigCommand(a))
}

// kindCommand makes the command that lists one kind of things; alias is the word for one.
func kindCommand(a *command.App, l listing.Lister, alias string, v command.Verb) *cobra.Command {
	o := &listing.Options{Kind: l}
	if v.Args == nil {
		v.Args = command.Names(alias, true)
	}
	v.Options = func(s *session.Session, args []string) command.Runner {
		o.Session, o.Names = s, args
		return o
	}
	cmd := a.Command(v)
	if alias != "" {
		cmd.Aliases = []string{alias}
	}
	cmd.Flags().BoolVarP(&o.Watch, "watch", "w", false, "go on, and print again what changes")
	return cmd
}

func getWorkersCommand(a *command.App) *cobra.Command {
	return kindCommand(a, workerKind(), "worker", command.Verb{
		Use: "workers [worker...]", Short: "List workers: role, device, state, sequences and KV blocks",
		Examples: []string{
			"dynctl get workers",
			"dynctl get workers worker-3 worker-4 --watch",
			"dynctl get workers -o json | jq '.[] | {name, state, kv: .stats.kv_active}'",
		},
		Complete: complete.Workers(a),
		See:      []string{"dynctl ps", "dynctl explain worker"},
	})
}

func getNodesCommand(a *command.App) *cobra.Command {
	return kindCommand(a, nodeKind(), "node", command.Verb{
		Use: "nodes [node...]", Short: "List the node agents: host, devices, workers and addresses",
		Examples: []string{
			"dynctl get nodes",
			"dynctl get nodes -o wide   # with version, instructions, addresses and GPUs",
			"dynctl get nodes node-2 -o yaml",
		},
		Complete: complete.Nodes(a),
		See:      []string{"dynctl ps --nodes", "dynctl explain node"},
	})
}

func getConfigCommand(a *command.App) *cobra.Command {
	return kindCommand(a, settings.Kind(), "setting", command.Verb{
		Use: "config [setting...]", Short: "List the settings that the cluster changes at run time",
		Long: "The configuration of dynctl itself is printed by dynctl config view.",
		Examples: []string{
			"dynctl get config",
			"dynctl get config disagg.strategy -o json",
			"dynctl get config -o wide --watch   # with what each one does",
		},
		Complete: settings.CompleteNames,
		See:      []string{"dynctl set", "dynctl config view"},
	})
}
