package get

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/complete"
	"github.com/dynctl/dynctl/internal/cli/listing"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/client"
)

func getQueuesCommand(a *command.App) *cobra.Command {
	return kindCommand(a, queueKind(), "queue", command.Verb{
		Use: "queues [queue...]", Short: "List where requests wait: the prefill queue, and the engine of each worker",
		Long: `The work queue "prefill" holds prompts for the prefill workers; a worker's own queue holds
the sequences that wait for its next batch. Dead letters are prompts that were given up.`,
		Examples: []string{
			"dynctl get queues",
			"dynctl get queues prefill --watch",
			"dynctl get queues -o json | jq 'map(.waiting) | add'",
		},
		Complete: complete.Queues(a),
		See:      []string{"dynctl top --view queue", "dynctl set"},
	})
}

// queueKind lists queues. The connection to the event plane that the first listing makes
// serves the others too.
func queueKind() listing.Kind[client.Queue] {
	var queues *client.Queues
	var absent error
	return listing.Kind[client.Queue]{
		What: "queues",
		Items: func(ctx context.Context, s listing.Scene) (list []client.Queue, err error) {
			if queues == nil {
				if queues, err = s.Cluster.Queues(); err != nil {
					return nil, err
				}
				s.Session.CloseFirst(queues)
			}
			list, absent = queues.List(ctx, s.View)
			if absent != nil && len(list) == 0 {
				return nil, absent
			}
			return list, nil
		},
		Name:  func(q client.Queue) string { return q.Name },
		Table: queuesTable,
		Empty: func(s listing.Scene) string { return "no event plane and no worker in cluster " + s.Cluster.Name },
		Gap: func() string {
			if absent == nil {
				return ""
			}
			return absent.Error()
		},
	}
}

func queuesTable(s listing.Scene, items []client.Queue, wide bool) *output.Table {
	titles := []string{"QUEUE", "KIND", ">WAITING", ">IN WORK", ">TRANSFER WAIT", ">DEAD LETTERS"}
	if wide {
		titles = append(titles, ">LIMIT")
	}
	t := output.NewTable(titles...)
	number := func(n *int) string {
		if n == nil {
			return "-"
		}
		return strconv.Itoa(*n)
	}
	for _, q := range items {
		row := []string{q.Name, q.Kind, strconv.Itoa(q.Waiting), strconv.Itoa(q.InWork), number(q.TransferWait), number(q.DeadLettered)}
		if wide {
			row = append(row, number(q.Limit))
		}
		t.Add(row...)
		if q.DeadLettered != nil && *q.DeadLettered > 0 {
			t.Paint(5, s.Session.Out.Palette().Warn)
		}
	}
	return t
}
