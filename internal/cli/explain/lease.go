package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/complete"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/fleet"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// leaseFacts are a lease and what hangs on it, as -o json prints them.
type leaseFacts struct {
	*cluster.Lease          // absent if it has ended
	Endpoints      []string `json:"endpoints"`
}

// LeaseOptions explain the lease of a worker or a node.
type LeaseOptions struct {
	Session *session.Session
	Owner   string
}

func leaseCommand(a *command.App) *cobra.Command {
	return a.Command(command.Verb{
		Use: "lease <worker or node>", Short: "Say whether a worker or node keeps its lease, and what ends with it",
		Long: `All keys of a worker belong to its lease, and those of a node to the node's lease. A process
that dies or freezes stops renewing: when the lease ends, its keys are deleted, it gets no
more requests, and others take over.`,
		Examples: []string{
			"dynctl explain lease worker-3",
			"dynctl explain lease node-1",
			"dynctl explain lease worker-3 -o json | jq .lease.left_ns",
		},
		Args:     command.One("worker or node"),
		Complete: complete.First(complete.Owners(a)),
		See:      []string{"dynctl get leases", "dynctl doctor"},
		Options: func(s *session.Session, args []string) command.Runner {
			return &LeaseOptions{Session: s, Owner: args[0]}
		},
	})
}

// Run prints the explanation.
func (o *LeaseOptions) Run(ctx context.Context) error {
	s := o.Session
	action := "cannot explain the lease of " + o.Owner
	c, v, err := s.Look(ctx, action)
	if err != nil {
		return err
	}
	o.Owner = v.NameOf(o.Owner)
	owner, ok := ownerOf(v, o.Owner)
	if !ok {
		return &exit.Failure{
			Action: action, Err: fmt.Errorf("no worker, node, service or program of that name in cluster %s", s.Config.Cluster), Tries: []string{"dynctl get leases", "dynctl ps"},
		}
	}
	list, _ := c.Leases(ctx, v)
	var lease *cluster.Lease
	if i := slices.IndexFunc(list, func(l cluster.Lease) bool { return l.Owner == o.Owner }); i >= 0 {
		lease = &list[i]
	}
	x := explainLease(v, owner, lease, s.Out.Palette().Warn, s.Out.Palette().Bad)
	return x.answer(s)
}

// owner is a worker or a node, as far as leases go.
type owner struct {
	name    string
	node    bool
	program bool               // or a service
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
	for _, p := range v.Programs {
		if p.Name == name {
			return owner{name: name, program: true, id: p.InstanceID, started: p.StartedAt}, true
		}
	}
	return owner{}, false
}

// explainLease says how the lease of an owner stands; nil is one that has ended, or that
// nobody could ask about.
func explainLease(v client.View, o owner, l *cluster.Lease, warn, bad func(string) string) *Explanation {
	x := &Explanation{Kind: "lease", Name: o.name, Lease: &leaseFacts{Lease: l, Endpoints: []string{}}}
	if o.id == 0 {
		x.State, x.Next = "none", "it gets a lease when it starts"
		x.Why = fmt.Sprintf("%s is %s: no process runs for it, and nothing is registered", o.name, o.state)
		x.Try = []string{"dynctl explain worker " + o.name}
		return x
	}
	x.Lease.Endpoints = append(x.Lease.Endpoints, fleet.EndpointsOf(v, o.id)...)
	what := "the worker counts as lost: frontends use other workers, and its agent takes a new lease or the controller places it anew"
	switch {
	case o.node:
		what = "the node is gone for the cluster: its workers are placed on other nodes"
	case o.program:
		what = "nobody is sent to it any more; it registers again when it comes back"
	}
	switch {
	case l == nil:
		x.State, x.mark, x.paint = "ended", "✕", bad
		x.Why, x.Next = "the lease has ended, or the store did not answer", what
		x.Try = []string{"dynctl doctor", "dynctl get leases"}
	case l.Left < l.TTL/3:
		x.State, x.mark, x.paint = "late", "▲", warn
		x.Why = fmt.Sprintf("last renewed %.1fs ago, a renewal is overdue: its process is busy, frozen, dead, or cut off from the store", l.Renewed.Seconds())
		x.Next = fmt.Sprintf("without a renewal it ends in %.1fs, and %s", l.Left.Seconds(), what)
		x.Try = []string{"dynctl doctor", "dynctl logs"}
	default:
		x.State, x.mark = "kept", "●"
		x.Why = fmt.Sprintf("%s renews it; the last time was %.1fs ago", o.name, l.Renewed.Seconds())
		x.Next = fmt.Sprintf("the process renews it; without that it would end in %.1fs", l.Left.Seconds())
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
