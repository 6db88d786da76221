package get

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/listing"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cluster"
)

func getLocksCommand(a *command.App) *cobra.Command {
	return kindCommand(a, lockKind(), "lock", command.Verb{
		Use: "locks [lock...]", Short: "List who has or waits for locks and elections",
		Long: `A lock has one writer or several readers; writers wait in line. The election of a
namespace is the lock leader/NAMESPACE: its node changes the workers to what is declared,
and the candidates after it take over in their order. A claim ends with its lease.`,
		Examples: []string{
			"dynctl get locks",
			"dynctl get locks leader/dynamo --watch",
			"dynctl get locks -o json | jq '.[] | select(.claim == \"waiting\") | .name'",
		},
		See: []string{"dynctl get leases", "dynctl doctor"},
	})
}

func lockKind() listing.Kind[cluster.Lock] {
	return listing.Kind[cluster.Lock]{
		What: "locks",
		Items: func(ctx context.Context, s listing.Scene) ([]cluster.Lock, error) {
			locks, err := s.Cluster.Locks(ctx, s.View)
			if locks == nil {
				locks = []cluster.Lock{}
			}
			return locks, err
		},
		Name: func(l cluster.Lock) string { return l.Name },
		Table: func(_ listing.Scene, items []cluster.Lock, _ bool) *output.Table {
			t := output.NewTable("LOCK", "CLAIM", "OWNER", "LEASE", ">LEFT")
			for _, l := range items {
				left := ""
				if l.Left != nil {
					left = fmt.Sprintf("%.1fs", l.Left.Seconds())
				}
				t.Add(l.Name, string(l.Claim), human.OrDash(l.Owner), l.Lease.String(), human.OrDash(left))
			}
			return t
		},
		Empty: func(s listing.Scene) string { return "nobody has a lock in cluster " + s.Cluster.Name },
	}
}
