package get

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/complete"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/listing"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/term"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
)

func getIndexCommand(a *command.App) *cobra.Command {
	return kindCommand(a, indexKind(), "", command.Verb{
		Use: "index [worker...]", Short: "List what the frontends know of the workers' KV caches, and how true it is",
		Long: `Each frontend keeps an index of the KV blocks in the caches of all workers. There is a row
for each frontend and worker: blocks by tier, the epoch of the worker's cache with the next
event that is expected of it, and since when events are known to be missing.

PREDICTED counts blocks that the index promised where requests were sent, FOUND those that the
workers then found in their caches, FALSE the predicted ones that were not there. Counters run
since the frontend met the worker. With router.kv_events: false the index is approximate: it
assumes prompts where they were sent, and has no epochs and events.

A line below the table tells how many requests of other frontends each frontend counts, or
why it counts none (router.replica_sync).`,
		Examples: []string{
			"dynctl get index",
			"dynctl get index worker-3 -o wide --watch   # with repairs: gaps, answers, dumps, resets",
			"dynctl get index -o json | jq '.[] | {worker, device, accuracy}'",
		},
		Args: command.Names("worker", true), Complete: complete.Workers(a),
		See: []string{"dynctl explain prefix", "dynctl events --kv", "dynctl cache clear"},
	})
}

// indexRow is what the index of one frontend knows of one worker, as -o json prints it.
type indexRow struct {
	Frontend string `json:"frontend"`
	cluster.KVIndexWorker
	Index indexTotals `json:"index"`
}

// indexTotals describe the whole index that a row comes from.
type indexTotals struct {
	Approximate bool   `json:"approximate"`
	Blocks      int    `json:"blocks"`
	Held        int    `json:"held"`
	Bytes       int64  `json:"bytes"`
	Forgotten   uint64 `json:"forgotten_total"`

	ReplicaSync *cluster.ReplicaSync `json:"replica_sync,omitempty"`
}

// indexKind lists the prefix indexes of the frontends, by worker.
func indexKind() listing.Kind[indexRow] {
	var all []cluster.KVIndex // of the last listing
	return listing.Kind[indexRow]{
		What: "index",
		Items: func(ctx context.Context, s listing.Scene) (rows []indexRow, err error) {
			if all, err = s.Cluster.KVIndexes(ctx, s.View, protocol.KVIndexRequest{}); err != nil {
				return nil, err
			}
			for _, x := range all {
				for _, w := range x.Workers {
					rows = append(rows, indexRow{x.Frontend, w, indexTotals{x.Approximate, x.Blocks, x.Held, x.Bytes, x.Forgotten, x.ReplicaSync}})
				}
			}
			return rows, nil
		},
		Name:  func(r indexRow) string { return r.Worker },
		Table: indexTable,
		Empty: func(s listing.Scene) string {
			return "no frontend of cluster " + s.Cluster.Name + " knows a worker; dynctl ps lists the workers"
		},
		Below: func(s listing.Scene, _ []indexRow) {
			for _, x := range all {
				text := term.Clean(totalsText(x)) + "\n"
				if x.ReplicaSync != nil {
					text += term.Clean(replicaText(x.Frontend, *x.ReplicaSync)) + "\n"
				}
				_, _ = io.WriteString(s.Session.Out.Beside(), text) // as for the table above it
			}
		},
	}
}

// totalsText describes the whole index of one frontend.
func totalsText(x cluster.KVIndex) string {
	way := "by KV events"
	if x.Approximate {
		way = "approximate: by what was routed, without KV events"
	}
	text := fmt.Sprintf("index of %s (%s): %s at %s in all, %s", x.Frontend, way, human.Plural(x.Blocks, "block"), human.Plural(x.Held, "place"), human.Bytes(x.Bytes))
	if x.Forgotten > 0 {
		text += fmt.Sprintf("; %d forgotten for want of memory", x.Forgotten)
	}
	return text
}

// replicaText describes what a frontend knows of the requests of the others.
func replicaText(frontend string, r cluster.ReplicaSync) string {
	if r.Off != "" {
		return fmt.Sprintf("requests of other frontends, as %s knows them: not counted, %s", frontend, r.Off)
	}
	flights, late := 0, 0
	for _, f := range r.Frontends {
		flights += f.Flights
		if !f.OutOfDateSince.IsZero() {
			late++
		}
	}
	text := fmt.Sprintf("requests of other frontends, as %s knows them: %d in flight at %s", frontend, flights, human.Plural(len(r.Frontends), "frontend"))
	if late > 0 {
		text += fmt.Sprintf(", %d of them out of date", late)
	}
	return text
}

func indexTable(s listing.Scene, items []indexRow, wide bool) *output.Table {
	titles := []string{"WORKER", "FRONTEND", ">DEVICE", ">HOST", ">DISK", "EPOCH", ">NEXT", "OUT OF DATE", ">PREDICTED", ">FOUND", ">FALSE"}
	if wide {
		titles = append(titles, ">REQUESTS", ">GAPS", ">ANSWERS", ">DUMPS", ">RESETS", "INSTANCE")
	}
	t := output.NewTable(titles...)
	count := func(n uint64) string { return strconv.FormatUint(n, 10) }
	for _, r := range items {
		epoch, next, missing := strconv.FormatUint(r.Epoch, 16), count(r.Next), "-"
		if r.Index.Approximate {
			epoch, next = "-", "-"
		}
		if since := r.OutOfDateSince; !since.IsZero() {
			if missing = since.UTC().Format(time.RFC3339); s.Session.Out.Streams.OutTTY {
				missing = human.Age(s.Session.Out.Now().Sub(since))
			}
		}
		acc := r.Accuracy
		row := []string{
			r.Worker, human.OrDash(r.Frontend), strconv.Itoa(r.Device), strconv.Itoa(r.Host), strconv.Itoa(r.Disk), epoch, next, missing,
			count(acc.Predicted), count(acc.Found), count(acc.False),
		}
		if wide {
			row = append(row, count(acc.Requests), count(r.GapsTotal), count(r.AnswersTotal), count(r.DumpsTotal), count(r.ResetsTotal), r.InstanceID.String())
		}
		t.Add(row...)
		if missing != "-" {
			t.Paint(7, s.Session.Out.Palette().Warn)
		}
		if 10*acc.False > acc.Predicted {
			t.Paint(10, s.Session.Out.Palette().Warn)
		}
	}
	return t
}
