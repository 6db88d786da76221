package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

func (f *factory) getLeases() *cobra.Command {
	return f.getVerb(leaseKind(), "lease", verb{
		use: "leases [owner...]", short: "List the etcd leases of workers and nodes, and how long each has left",
		long: `The owner is a worker or a node. What an owner has registered goes when its lease ends.
An owner whose lease has ended is told on standard error.`,
		examples: []string{
			"dynctl get leases",
			"dynctl get leases worker-3 node-1 --watch",
			"dynctl get leases -o json | jq '.[] | select(.left_ns < 3e9) | .owner'",
		},
		complete: f.completeOwners,
		see:      []string{"dynctl explain lease", "dynctl doctor"},
	})
}

// leaseKind lists leases, by owner.
func leaseKind() kind[cluster.Lease] {
	var silent []string // of the last listing
	return kind[cluster.Lease]{
		what: "leases",
		items: func(ctx context.Context, s scene) (list []cluster.Lease, err error) {
			list, silent = s.c.Leases(ctx, s.v)
			return list, nil
		},
		name:  func(l cluster.Lease) string { return l.Owner },
		table: leasesTable,
		empty: func(s scene) string {
			return "no worker or node of cluster " + s.c.Name + " has a lease; dynctl up starts some"
		},
		gap: func() string {
			if len(silent) == 0 {
				return ""
			}
			return "no lease any more, or no answer about it: " + nameList(silent)
		},
	}
}

func leasesTable(s scene, items []cluster.Lease, wide bool) *table {
	titles := []string{"OWNER", "LEASE", ">TTL", ">LEFT", ">RENEWED"}
	if wide {
		titles = append(titles, "OWNS")
	}
	t := newTable(titles...)
	seconds := func(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }
	for _, l := range items {
		row := []string{l.Owner, l.ID.String(), seconds(l.TTL), seconds(l.Left), seconds(l.Renewed) + " ago"}
		if wide {
			row = append(row, orDash(nameList(endpointsOf(s.v, l.ID))))
		}
		t.add(row...)
		if l.Left < l.TTL/3 { // it was to be renewed by now
			t.paint(3, s.inv.palette().Warn)
		}
	}
	return t
}

// endpointsOf are the endpoints that are registered under a lease.
func endpointsOf(v client.View, id cluster.InstanceID) []string {
	var out []string
	for _, inst := range v.Instances {
		if inst.InstanceID == id {
			out = append(out, inst.Component+"/"+inst.Endpoint)
		}
	}
	slices.Sort(out)
	return out
}
