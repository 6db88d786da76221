package get

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/complete"
	"github.com/dynctl/dynctl/internal/cli/fleet"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/listing"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cluster"
)

func getLeasesCommand(a *command.App) *cobra.Command {
	return kindCommand(a, leaseKind(), "lease", command.Verb{
		Use: "leases [owner...]", Short: "List the leases of workers and nodes, and how long each has left",
		Long: `The owner is a worker or a node. When a lease ends, everything its owner has
registered is deleted. Owners whose lease has ended are listed on standard error.`,
		Examples: []string{
			"dynctl get leases",
			"dynctl get leases worker-3 node-1 --watch",
			"dynctl get leases -o json | jq '.[] | select(.left_ns < 3e9) | .owner'",
		},
		Complete: complete.Owners(a),
		See:      []string{"dynctl explain lease", "dynctl doctor"},
	})
}

// leaseKind lists leases, by owner.
func leaseKind() listing.Kind[cluster.Lease] {
	var silent []string // of the last listing
	return listing.Kind[cluster.Lease]{
		What: "leases",
		Items: func(ctx context.Context, s listing.Scene) (list []cluster.Lease, err error) {
			list, silent = s.Cluster.Leases(ctx, s.View)
			return list, nil
		},
		Name:  func(l cluster.Lease) string { return l.Owner },
		Table: leasesTable,
		Empty: func(s listing.Scene) string {
			return "no worker or node of cluster " + s.Cluster.Name + " has a lease; dynctl up starts some"
		},
		Gap: func() string {
			if len(silent) == 0 {
				return ""
			}
			return "no lease any more, or no answer about it: " + human.Names(silent)
		},
	}
}

func leasesTable(s listing.Scene, items []cluster.Lease, wide bool) *output.Table {
	titles := []string{"OWNER", "LEASE", ">TTL", ">LEFT", ">RENEWED"}
	if wide {
		titles = append(titles, "OWNS")
	}
	t := output.NewTable(titles...)
	seconds := func(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }
	for _, l := range items {
		row := []string{l.Owner, l.ID.String(), seconds(l.TTL), seconds(l.Left), seconds(l.Renewed) + " ago"}
		if wide {
			row = append(row, human.OrDash(human.Names(fleet.EndpointsOf(s.View, l.ID))))
		}
		t.Add(row...)
		if l.Left < l.TTL/3 { // it was to be renewed by now
			t.Paint(3, s.Session.Out.Palette().Warn)
		}
	}
	return t
}
