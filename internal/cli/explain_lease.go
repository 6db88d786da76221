package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// leaseFacts are a lease and what hangs on it, as -o json prints them.
type leaseFacts struct {
	*cluster.Lease          // absent if it has ended
	Endpoints      []string `json:"endpoints"`
}

func (f *factory) explainLease() *cobra.Command {
	return f.command(verb{
		use: "lease <worker or node>", short: "Say whether an owner keeps its lease, and what goes when it ends",
		long: `Everything that a worker registers hangs on its lease, and what a node registers on the
node's. A process that dies or freezes renews no more: when the lease ends, its keys go,
nobody sends it requests, and others take over.`,
		examples: []string{
			"dynctl explain lease worker-3",
			"dynctl explain lease node-1",
			"dynctl explain lease worker-3 -o json | jq .lease.left_ns",
		},
		args: oneOf("worker or node"),
		complete: f.completeOne(func(v client.View) []cobra.Completion {
			return append(workerNames(v), nodeNames(v)...)
		}),
		see: []string{"dynctl get leases", "dynctl doctor"},
		run: func(ctx context.Context, inv *invocation, args []string) error {
			action := "cannot explain the lease of " + args[0]
			c, v, err := inv.look(ctx, action)
			if err != nil {
				return err
			}
			owner, ok := ownerOf(v, args[0])
			if !ok {
				return &failure{
					action: action, err: fmt.Errorf("no worker or node of that name in cluster %s", inv.cfg.Cluster), tries: []string{"dynctl get leases", "dynctl ps"},
				}
			}
			list, _ := c.Leases(ctx, v)
			var lease *cluster.Lease
			if i := slices.IndexFunc(list, func(l cluster.Lease) bool { return l.Owner == args[0] }); i >= 0 {
				lease = &list[i]
			}
			x := explainLease(v, owner, lease, inv.palette().Warn, inv.palette().Bad)
			return x.answer(inv)
		},
	})
}

// owner is a worker or a node, as far as leases go.
type owner struct {
	name    string
	node    bool
	id      cluster.InstanceID // 0 when it has no lease
	started time.Time
	state   cluster.State // of a worker
}

func ownerOf(v client.View, name string) (owner, bool) {
	for _, n := range v.Nodes {
		if n.Name == name {
			return owner{name: name, node: true, id: n.InstanceID, started: n.StartedAt}, true
		}
	}
	for _, w := range v.Workers() {
		if w.Name == name {
			return owner{name: name, id: w.InstanceID, started: w.StartedAt, state: w.State}, true
		}
	}
	return owner{}, false
}

// explainLease says how the lease of an owner stands; nil is one that has ended, or that
// nobody could ask about.
func explainLease(v client.View, o owner, l *cluster.Lease, warn, bad func(string) string) *explanation {
	x := &explanation{Kind: "lease", Name: o.name, Lease: &leaseFacts{Lease: l, Endpoints: []string{}}}
	if o.id == 0 {
		x.State, x.Next = "none", "it gets a lease when it starts"
		x.Why = fmt.Sprintf("%s is %s: no process runs for it, and nothing is registered", o.name, o.state)
		x.Try = []string{"dynctl explain worker " + o.name}
		return x
	}
	x.Lease.Endpoints = append(x.Lease.Endpoints, endpointsOf(v, o.id)...)
	what := "the worker is lost to everybody: frontends go on elsewhere, and its agent takes a new lease or the controller places it anew"
	if o.node {
		what = "the node is gone for the cluster: its workers are placed on other nodes"
	}
	switch {
	case l == nil:
		x.State, x.mark, x.paint = "ended", "✕", bad
		x.Why, x.Next = "etcd has no lease of that id any more, or did not answer about it", what
		x.Try = []string{"dynctl doctor", "dynctl get leases"}
	case l.Left < l.TTL/3:
		x.State, x.mark, x.paint = "late", "▲", warn
		x.Why = fmt.Sprintf("it was renewed %.1fs ago, and should have been since: its process is busy, frozen, dead, or cut off from etcd", l.Renewed.Seconds())
		x.Next = fmt.Sprintf("if nothing comes, it ends in %.1fs, and %s", l.Left.Seconds(), what)
		x.Try = []string{"dynctl doctor", "dynctl logs"}
	default:
		x.State, x.mark = "kept", "●"
		x.Why = fmt.Sprintf("%s renews it; the last time was %.1fs ago", o.name, l.Renewed.Seconds())
		x.Next = fmt.Sprintf("it lasts as long as the process; without one it would end in %.1fs", l.Left.Seconds())
	}
	x.since(o.started)
	if l != nil {
		x.fact("id", "%s", l.ID)
		x.fact("ttl", "%.1fs, %.1fs left", l.TTL.Seconds(), l.Left.Seconds())
	}
	if len(x.Lease.Endpoints) > 0 {
		x.fact("owns", "%s", strings.Join(x.Lease.Endpoints, ", "))
	}
	return x
}
