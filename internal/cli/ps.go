package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/term"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// psCommand lists workers or nodes.
type psCommand struct {
	nodes bool
	watch bool
}

func (f *factory) ps() *cobra.Command {
	o := &psCommand{}
	cmd := f.command(verb{
		use: "ps", short: "List the workers of the cluster, or its nodes", group: groupLook,
		long: `One row for each worker: what it does, on which device, in which state, how many
sequences it runs (+n wait) and how many KV blocks are used. Load figures come from
the workers themselves. Under the table stand the reasons of workers that do not serve.`,
		examples: []string{
			"dynctl ps",
			"dynctl ps -o wide           # with model, lease and restarts",
			"dynctl ps --nodes           # the machines behind the workers",
		},
		see: []string{"dynctl get", "dynctl top", "dynctl explain"},
		run: o.run,
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&o.nodes, "nodes", false, "list nodes instead of workers")
	fs.BoolVarP(&o.watch, "watch", "w", false, "go on, and print again what changes")
	return cmd
}

func (o *psCommand) run(ctx context.Context, inv *invocation, _ []string) error {
	if o.nodes {
		return inv.show(ctx, nodeKind(), nil, o.watch)
	}
	return inv.show(ctx, workerKind(), nil, o.watch)
}

// workerKind lists workers with fresh load figures.
func workerKind() kind[cluster.Worker] {
	return kind[cluster.Worker]{
		what:  "workers",
		items: func(ctx context.Context, s scene) ([]cluster.Worker, error) { return s.c.Workers(ctx, s.v), nil },
		name:  func(w cluster.Worker) string { return w.Name },
		table: func(s scene, items []cluster.Worker, wide bool) *table { return workersTable(s.inv, s.v, items, wide) },
		empty: func(s scene) string { return "no workers in cluster " + s.c.Name + "; start some: dynctl up" },
		below: func(s scene, items []cluster.Worker) { s.inv.reasons(items) },
	}
}

// nodeKind lists the agents of the cluster.
func nodeKind() kind[nodeRow] {
	return kind[nodeRow]{
		what:  "nodes",
		items: func(ctx context.Context, s scene) ([]nodeRow, error) { return nodeRows(s.v, s.c.Nodes(ctx, s.v)), nil },
		name:  func(n nodeRow) string { return n.Name },
		table: func(s scene, items []nodeRow, wide bool) *table { return nodesTable(s.inv, items, wide) },
		empty: func(s scene) string { return "no node of cluster " + s.c.Name + " is up; start one: dynctl up" },
	}
}

// reasons says below a table why workers do not serve as they should.
func (inv *invocation) reasons(workers []cluster.Worker) {
	var b strings.Builder
	w := inv.stdout()
	if !inv.env.Streams.OutTTY {
		w = inv.env.Streams.Err // the table is for programs
	}
	now := inv.env.Now()
	for _, wk := range workers {
		if wk.Reason == "" {
			continue
		}
		text := wk.Name + " " + string(wk.State) + ": " + term.Clean(wk.Reason)
		if wk.State == cluster.StateFailed && wk.RetryAt.After(now) {
			text += fmt.Sprintf(" (starts again in %s)", age(wk.RetryAt.Sub(now)))
		}
		fmt.Fprintln(&b, text)
	}
	_, _ = io.WriteString(w, b.String()) // as for the table above it
}

// degreeText is a tensor-parallel degree, which is not known before the model is loaded.
func degreeText(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

func workersTable(inv *invocation, v client.View, workers []cluster.Worker, wide bool) *table {
	tty := inv.env.Streams.OutTTY
	titles := []string{"NAME", "ROLE", "~DEVICE", "STATE", ">SEQS", ">KV", "~NODE", ageTitle(tty)}
	if wide {
		titles = append(titles, "MODEL", "WEIGHTS", ">GEN", ">RESTARTS", ">LEASE", "INSTANCE", "REASON", ">TP")
	}
	t := newTable(titles...)
	for _, w := range workers {
		state := string(w.State)
		mark, paint := stateLook(w.State, inv.palette())
		if w.State == cluster.StateLoading && w.Progress > 0 && tty {
			state = fmt.Sprintf("loading %d%%", int(w.Progress*100))
		}
		if tty {
			state = mark + " " + state
		}
		seqs, kv := "-", "-"
		if w.InstanceID != 0 && w.Stats.KVTotal > 0 {
			seqs = strconv.Itoa(w.Stats.Running)
			if n := w.Stats.Waiting + w.Stats.RemoteWait; n > 0 {
				seqs += "+" + strconv.Itoa(n)
			}
			kv = fmt.Sprintf("%d/%d", w.Stats.KVUsed(), w.Stats.KVTotal)
		}
		row := []string{
			w.Name, string(w.Role), orDash(deviceText(v.Nodes, w.Node, w.Device)), state, seqs, kv, orDash(w.Node),
			startText(w.Uptime, w.StartedAt, tty),
		}
		if wide {
			instance := "-"
			if w.InstanceID != 0 {
				instance = w.InstanceID.String()
			}
			row = append(row, orDash(w.Model), orDash(w.Weights), strconv.FormatInt(w.Generation, 10), strconv.Itoa(w.Restarts),
				leaseText(w.Lease), instance, orDash(w.Reason), degreeText(w.TensorParallel))
		}
		t.add(row...)
		if paint != nil {
			t.paint(3, paint)
		}
	}
	return t
}

// ageTitle heads the column of startText: people read ages, programs compare times.
func ageTitle(tty bool) string {
	if tty {
		return ">UPTIME"
	}
	return "STARTED"
}

func startText(up *time.Duration, started time.Time, tty bool) string {
	switch {
	case up == nil || started.IsZero():
		return "-"
	case tty:
		return age(*up)
	}
	return started.UTC().Format(time.RFC3339)
}

func leaseText(left *time.Duration) string {
	if left == nil {
		return "-"
	}
	return fmt.Sprintf("%.1fs", left.Seconds())
}

// nodeRow is a node with what its workers add up to.
type nodeRow struct {
	cluster.Node
	Workers []string `json:"workers"`
	// State is ready, degraded with alarms, draining or drained.
	State cluster.State `json:"state"`
}

func nodeRows(v client.View, nodes []cluster.Node) []nodeRow {
	var rows []nodeRow
	for _, n := range nodes {
		r := nodeRow{Node: n, Workers: []string{}, State: cluster.StateReady}
		if len(n.Alarms) > 0 {
			r.State = cluster.StateDegraded
		}
		if _, cordoned := v.Cordons[n.ID]; cordoned {
			r.State = cluster.StateDrained
		}
		for _, w := range v.Workers() {
			if w.Node != n.ID {
				continue
			}
			r.Workers = append(r.Workers, w.Name)
			if r.State == cluster.StateDrained && !safe(w.WorkerStatus) {
				r.State = cluster.StateDraining
			}
		}
		rows = append(rows, r)
	}
	return rows
}

func nodesTable(inv *invocation, rows []nodeRow, wide bool) *table {
	titles := []string{"NAME", "~HOST", ">PID", "~DEVICES", "STATE", "PREFERS", "~WORKERS", "STORES", "~FRONTEND", ageTitle(inv.env.Streams.OutTTY)}
	if wide {
		titles = append(append(titles, "COMPUTES WITH", "VERSION", "ID", "REQUEST PLANE", "STATUS"), gpuTitles...)
	}
	t := newTable(titles...)
	for _, n := range rows {
		devices, prefers, stores := "", "", ""
		for _, d := range n.Devices {
			devices = join(devices, deviceText([]cluster.Node{n.Node}, n.ID, d.ID))
		}
		for _, r := range n.Roles {
			prefers = join(prefers, string(r))
		}
		if n.EmbeddedEtcd {
			stores = join(stores, "etcd")
		}
		if n.EmbeddedNATS {
			stores = join(stores, "nats")
		}
		up := inv.env.Now().Sub(n.StartedAt)
		row := []string{
			n.Name, orDash(n.Host), strconv.Itoa(n.PID), orDash(devices), string(n.State), orDash(prefers), nameList(n.Workers),
			orDash(stores), orDash(n.FrontendURL), startText(&up, n.StartedAt, inv.env.Streams.OutTTY),
		}
		if wide {
			row = append(row, orDash(nameList(n.ISAs())), orDash(n.Version), n.ID, orDash(n.RequestPlane), orDash(n.StatusURL))
			row = append(row, gpuCells(n.GPU)...)
		}
		t.add(row...)
	}
	return t
}

func join(list, item string) string {
	if list == "" {
		return item
	}
	return list + "," + item
}
