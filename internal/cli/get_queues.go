package cli

import (
	"context"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/client"
)

func (f *factory) getQueues() *cobra.Command {
	return f.getVerb(queueKind(), "queue", verb{
		use: "queues [queue...]", short: "List where requests wait: the prefill queue, and the engine of each worker",
		long: `The work queue "prefill" holds prompts for the prefill workers; a worker's own queue holds
the sequences that wait for its next batch. Dead letters are prompts that were given up.`,
		examples: []string{
			"dynctl get queues",
			"dynctl get queues prefill --watch",
			"dynctl get queues -o json | jq 'map(.waiting) | add'",
		},
		complete: f.completeQueues,
		see:      []string{"dynctl top --view queue", "dynctl set"},
	})
}

// queueKind lists queues. The connection to the event plane that the first listing makes
// serves the others too.
func queueKind() kind[client.Queue] {
	var queues *client.Queues
	var absent error
	return kind[client.Queue]{
		what: "queues",
		items: func(ctx context.Context, s scene) (list []client.Queue, err error) {
			if queues == nil {
				if queues, err = s.c.Queues(); err != nil {
					return nil, err
				}
				s.inv.open = append([]io.Closer{queues}, s.inv.open...) // before the connections that it uses
			}
			list, absent = queues.List(ctx, s.v)
			if absent != nil && len(list) == 0 {
				return nil, absent
			}
			return list, nil
		},
		name:  func(q client.Queue) string { return q.Name },
		table: queuesTable,
		empty: func(s scene) string { return "no event plane and no worker in cluster " + s.c.Name },
		gap: func() string {
			if absent == nil {
				return ""
			}
			return absent.Error()
		},
	}
}

func queuesTable(s scene, items []client.Queue, wide bool) *table {
	titles := []string{"QUEUE", "KIND", ">WAITING", ">IN WORK", ">TRANSFER WAIT", ">DEAD LETTERS"}
	if wide {
		titles = append(titles, ">LIMIT")
	}
	t := newTable(titles...)
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
		t.add(row...)
		if q.DeadLettered != nil && *q.DeadLettered > 0 {
			t.paint(5, s.inv.palette().Warn)
		}
	}
	return t
}
