package get

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/fleet"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/listing"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/term"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// PsCommand makes dynctl ps.
func PsCommand(a *command.App) *cobra.Command {
	o := &listing.Options{}
	var nodes bool
	cmd := a.Command(command.Verb{
		Use: "ps", Short: "List the workers of the cluster, or its nodes", Group: command.GroupLook,
		Long: `One row for each worker: what it does, on which device, in which state, how many
sequences it runs (+n wait) and how many KV blocks are used. Load figures come from
the workers themselves. Under the table stand the reasons of workers that do not serve.

Services that dynctl attach has joined (role service) and programs that joined by themselves
(role program) have rows, too: since when they are there, whether they work, and with -o wide
the endpoints that they serve. They hold leases, and are no workers: they cannot be drained.`,
		Examples: []string{
			"dynctl ps",
			"dynctl ps -o wide           # with model, lease and restarts",
			"dynctl ps --nodes           # the machines behind the workers",
		},
		See: []string{"dynctl get", "dynctl top", "dynctl explain"},
		Options: func(s *session.Session, _ []string) command.Runner {
			o.Session, o.Kind = s, psKind()
			if nodes {
				o.Kind = nodeKind()
			}
			return o
		},
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&nodes, "nodes", false, "list nodes instead of workers")
	fs.BoolVarP(&o.Watch, "watch", "w", false, "go on, and print again what changes")
	return cmd
}

// workerKind lists workers with fresh load figures.
func workerKind() listing.Kind[cluster.Worker] {
	return listing.Kind[cluster.Worker]{
		What: "workers",
		Items: func(ctx context.Context, s listing.Scene) ([]cluster.Worker, error) {
			return s.Cluster.Workers(ctx, s.View), nil
		},
		Name: func(w cluster.Worker) string { return w.Name },
		Table: func(s listing.Scene, items []cluster.Worker, wide bool) *output.Table {
			return workersTable(s.Session, s.View, items, wide, nil)
		},
		Empty: func(s listing.Scene) string {
			if len(s.View.Nodes) == 0 {
				return "no workers in cluster " + s.Cluster.Name + ", and no node is up; start one: " + s.Session.StartNode()
			}
			return "no workers in cluster " + s.Cluster.Name + "; start some: dynctl up"
		},
		Below: func(s listing.Scene, items []cluster.Worker) { reasons(s.Session, items) },
	}
}

// nodeKind lists the agents of the cluster.
func nodeKind() listing.Kind[fleet.NodeRow] {
	return listing.Kind[fleet.NodeRow]{
		What: "nodes",
		Items: func(ctx context.Context, s listing.Scene) ([]fleet.NodeRow, error) {
			return fleet.NodeRows(s.View, s.Cluster.Nodes(ctx, s.View)), nil
		},
		Name: func(n fleet.NodeRow) string { return n.Name },
		Table: func(s listing.Scene, items []fleet.NodeRow, wide bool) *output.Table {
			return nodesTable(s.Session, items, wide)
		},
		Empty: func(s listing.Scene) string {
			return "no node of cluster " + s.Cluster.Name + " is up; start one: " + s.Session.StartNode()
		},
	}
}

// reasons says below a table why workers do not serve as they should.
func reasons(sess *session.Session, workers []cluster.Worker) {
	var b strings.Builder
	w := sess.Out.Beside()
	now := sess.Out.Now()
	for _, wk := range workers {
		if wk.Silent() {
			fmt.Fprintf(&b, "%s unknown: it does not answer; it was %s\n", wk.Name, wk.State)
			continue
		}
		if wk.Reason == "" {
			continue
		}
		text := wk.Name + " " + string(wk.State) + ": " + term.Clean(wk.Reason)
		if wk.State == cluster.StateFailed && wk.RetryAt.After(now) {
			text += fmt.Sprintf(" (starts again in %s)", human.Age(wk.RetryAt.Sub(now)))
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

// modelText is the model of a worker, with the adapters of its server.
func modelText(w cluster.Worker) string {
	if w.ServerStatus == nil || len(w.ServerStatus.Adapters) == 0 {
		return human.OrDash(w.Model)
	}
	return w.Model + " + " + human.Names(w.ServerStatus.Adapters)
}

// workersTable lists workers; serves, if not nil, is what each row serves beside requests of
// frontends.
func workersTable(s *session.Session, v client.View, workers []cluster.Worker, wide bool, serves []string) *output.Table {
	tty := s.Out.Streams.OutTTY
	titles := []string{"NAME", "ROLE", "~DEVICE", "STATE", ">SEQS", ">KV", "~NODE", ageTitle(tty)}
	pools := slices.ContainsFunc(workers, func(w cluster.Worker) bool { return w.Pool != "" })
	if wide {
		titles = append(titles, "MODEL", "WEIGHTS", ">GEN", ">RESTARTS", ">LEASE", "INSTANCE", "REASON", ">TP")
		if serves != nil {
			titles = append(titles, "SERVES")
		}
		if pools {
			titles = append(titles, "POOL")
		}
	}
	t := output.NewTable(titles...)
	for i, w := range workers {
		state := string(w.State)
		mark, paint := human.StateLook(w.State, s.Out.Palette())
		if w.State == cluster.StateLoading && w.Progress > 0 && tty {
			state = fmt.Sprintf("loading %d%%", int(w.Progress*100))
		}
		if w.Silent() {
			state = "unknown"
			mark, paint = human.StateLook(cluster.StateDegraded, s.Out.Palette())
		}
		if tty {
			state = mark + " " + state
		}
		seqs, kv := "-", "-"
		if fleet.Measured(w) {
			seqs = strconv.Itoa(w.Stats.Running)
			if n := w.Stats.Waiting + w.Stats.RemoteWait; n > 0 {
				seqs += "+" + strconv.Itoa(n)
			}
			if w.Stats.KVTotal > 0 {
				kv = fmt.Sprintf("%d/%d", w.Stats.KVUsed(), w.Stats.KVTotal)
			}
		}
		row := []string{
			w.Name, string(w.Role), human.OrDash(human.Place(v.Nodes, w)), state, seqs, kv, human.OrDash(w.Node),
			startText(w.Uptime, w.StartedAt, tty),
		}
		if wide {
			instance := "-"
			if w.InstanceID != 0 {
				instance = w.InstanceID.String()
			}
			row = append(row, modelText(w), human.OrDash(w.Weights), strconv.FormatInt(w.Generation, 10), strconv.Itoa(w.Restarts),
				human.Lease(w.Lease), instance, human.OrDash(w.Reason), degreeText(w.TensorParallel))
			if serves != nil {
				row = append(row, human.OrDash(serves[i]))
			}
			if pools {
				row = append(row, human.OrDash(w.Pool))
			}
		}
		t.Add(row...)
		if paint != nil {
			t.Paint(3, paint)
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
		return human.Age(*up)
	}
	return started.UTC().Format(time.RFC3339)
}

func nodesTable(s *session.Session, rows []fleet.NodeRow, wide bool) *output.Table {
	titles := []string{"NAME", "~HOST", ">PID", "~DEVICES", "STATE", "PREFERS", "~WORKERS", "STORES", "~FRONTEND", ageTitle(s.Out.Streams.OutTTY)}
	if wide {
		titles = append(append(titles, "COMPUTES WITH", "VERSION", "ID", "REQUEST PLANE", "STATUS"), gpuTitles...)
	}
	t := output.NewTable(titles...)
	for _, n := range rows {
		devices, prefers, stores := "", "", ""
		for _, d := range n.Devices {
			devices = join(devices, human.Device([]cluster.Node{n.Node}, n.ID, d.ID))
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
		up := s.Out.Now().Sub(n.StartedAt)
		row := []string{
			n.Name, human.OrDash(n.Host), strconv.Itoa(n.PID), human.OrDash(devices), string(n.State), human.OrDash(prefers), human.Names(n.Workers),
			human.OrDash(stores), human.OrDash(n.FrontendURL), startText(&up, n.StartedAt, s.Out.Streams.OutTTY),
		}
		if wide {
			row = append(row, human.OrDash(human.Names(n.ISAs())), human.OrDash(n.Version), n.ID, human.OrDash(n.RequestPlane), human.OrDash(n.StatusURL))
			row = append(row, gpuCells(n.GPU)...)
		}
		t.Add(row...)
	}
	return t
}

func join(list, item string) string {
	if list == "" {
		return item
	}
	return list + "," + item
}
