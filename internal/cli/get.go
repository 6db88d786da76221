package cli

import (
	"context"

	"github.com/spf13/cobra"
)

// get is the verb that lists: workers, nodes and whatever else a cluster is made of.
func (f *factory) get() *cobra.Command {
	cmd := f.command(verb{
		use: "get <what> [name...]", short: "List namespaces, workers, nodes, leases, queues, the topology, events or settings", group: groupLook, free: true,
		long: `Each kind has the same forms: a table (-o wide has more columns), json, yaml and names.
--watch goes on: on a terminal the list is redrawn, elsewhere rows that changed follow, and
json is one document per line. Names choose some; if one of several is not there the exit
code is 5, and 1 if none is.`,
		examples: []string{
			"dynctl get workers",
			"dynctl get leases worker-3 --watch",
			"dynctl get queues -o json",
		},
		see:  []string{"dynctl ps", "dynctl explain", "dynctl top"},
		args: cobra.ArbitraryArgs,
		run: func(_ context.Context, inv *invocation, args []string) error {
			if len(args) > 0 {
				return unknownCommand(inv.cmd, args[0])
			}
			return inv.cmd.Help()
		},
	})
	cmd.AddCommand(f.getNamespaces(), f.getWorkers(), f.getNodes(), f.getLeases(), f.getQueues(), f.getTopology(), f.getEvents(), f.getConfig())
	return cmd
}

// getVerb makes the command that lists one kind of things; alias is the word for one.
func (f *factory) getVerb(l lister, alias string, v verb) *cobra.Command {
	var watch bool
	if v.args == nil {
		v.args = names(alias, true)
	}
	v.run = func(ctx context.Context, inv *invocation, args []string) error { return inv.show(ctx, l, args, watch) }
	cmd := f.command(v)
	if alias != "" {
		cmd.Aliases = []string{alias}
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on, and print again what changes")
	return cmd
}

func (f *factory) getWorkers() *cobra.Command {
	return f.getVerb(workerKind(), "worker", verb{
		use: "workers [worker...]", short: "List workers: role, device, state, sequences and KV blocks",
		examples: []string{
			"dynctl get workers",
			"dynctl get workers worker-3 worker-4 --watch",
			"dynctl get workers -o json | jq '.[] | {name, state, kv: .stats.kv_active}'",
		},
		complete: f.completeWorkers,
		see:      []string{"dynctl ps", "dynctl explain worker"},
	})
}

func (f *factory) getNodes() *cobra.Command {
	return f.getVerb(nodeKind(), "node", verb{
		use: "nodes [node...]", short: "List the node agents: host, devices, workers and addresses",
		examples: []string{
			"dynctl get nodes",
			"dynctl get nodes -o wide   # with version, instructions, addresses and GPUs",
			"dynctl get nodes node-2 -o yaml",
		},
		complete: f.completeNodes,
		see:      []string{"dynctl ps --nodes", "dynctl explain node"},
	})
}

func (f *factory) getConfig() *cobra.Command {
	return f.getVerb(settingKind(), "setting", verb{
		use: "config [setting...]", short: "List the settings that the cluster changes at run time",
		long: "The configuration of dynctl itself is printed by dynctl config view.",
		examples: []string{
			"dynctl get config",
			"dynctl get config disagg.strategy -o json",
			"dynctl get config -o wide --watch   # with what each one does",
		},
		complete: completeSettingNames,
		see:      []string{"dynctl set", "dynctl config view"},
	})
}

// settingKind lists settings that change at run time.
func settingKind() kind[runtimeSetting] {
	return kind[runtimeSetting]{
		what:  "config",
		items: func(ctx context.Context, s scene) ([]runtimeSetting, error) { return runtimeSettings(ctx, s.c) },
		name:  func(r runtimeSetting) string { return r.Setting },
		table: func(_ scene, items []runtimeSetting, wide bool) *table { return settingsTable(items, wide) },
	}
}
