package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

func (f *factory) explainWorker() *cobra.Command {
	return f.command(verb{
		use: "worker <worker>", short: "Say why a worker is in its state, since when, and what comes next",
		long: `What the topology asks of the worker, what its agent has made of it and what the worker
says itself, put together, with the sequences and KV transfers that it has in hand.`,
		examples: []string{
			"dynctl explain worker worker-3",
			"dynctl explain worker worker-3 -o json | jq -r .why",
			"dynctl explain worker worker-3 -o yaml",
		},
		args: oneOf("worker"), complete: f.completeOne(workerNames),
		see: []string{"dynctl explain lease", "dynctl logs", "dynctl get workers"},
		run: func(ctx context.Context, inv *invocation, args []string) error {
			action := "cannot explain " + args[0]
			c, v, err := inv.look(ctx, action)
			if err != nil {
				return err
			}
			workers := c.Workers(ctx, v)
			i := slices.IndexFunc(workers, func(w cluster.Worker) bool { return w.Name == args[0] })
			if i < 0 {
				return inv.noWorker(action, args[0], v)
			}
			x := explainWorker(v, workers[i], inv.env.Now())
			if workers[i].InstanceID != 0 {
				a := c.Activity(ctx, v, args[0])
				x.activity(&a)
			}
			x.mark, x.paint = stateLook(workers[i].State, inv.palette())
			return x.answer(inv)
		},
	})
}

// oneOf wants one name.
func oneOf(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] == "" {
			return fmt.Errorf("name one %s", what)
		}
		return nil
	}
}

// completeOne completes the first argument and no other.
func (f *factory) completeOne(all func(client.View) []cobra.Completion) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return f.completeLive(cmd, nil, all)
	}
}

// look connects and reads the cluster once.
func (inv *invocation) look(ctx context.Context, action string) (*client.Cluster, client.View, error) {
	c, err := inv.connect(ctx, action)
	if err != nil {
		return nil, client.View{}, err
	}
	v, err := c.View(ctx)
	if err != nil {
		return nil, v, &failure{action: action, err: err}
	}
	return c, v, nil
}

// explainWorker puts together what is known of a worker.
func explainWorker(v client.View, w cluster.Worker, now time.Time) *explanation {
	x := &explanation{Kind: "worker", Name: w.Name, State: string(w.State), Worker: &w}
	a, assigned := v.Assignments[w.Name]
	switch w.State {
	case cluster.StatePending:
		explainPending(x, v, a, w)
	case cluster.StateLoading:
		x.since(w.StartedAt)
		x.Why, x.Next = "its agent loads the model", "it warms up, and then serves"
		if w.Progress > 0 {
			x.Why += fmt.Sprintf(", %d%% so far", int(w.Progress*100))
		}
		x.Try = []string{"dynctl logs -f " + w.Name}
	case cluster.StateWarming:
		x.since(w.StartedAt)
		x.Why, x.Next = "the model is loaded; a first batch shows that it computes", "it serves"
	case cluster.StateReady:
		x.since(w.StartedAt)
		x.Why, x.Next = "the model is loaded and frontends send it requests", "it goes on"
		if w.Role == cluster.RolePrefill {
			x.Why = "the model is loaded and it takes prompts that decode workers or frontends give away"
		}
	case cluster.StateDegraded:
		x.Why, x.Next = w.Reason, "it goes on serving"
		if w.Reason == "kv-high" {
			x.Why = fmt.Sprintf("kv-high: %d of %d KV blocks are in use", w.Stats.KVUsed(), w.Stats.KVTotal)
			x.Next = "it is ready again when sequences have ended; until then some may be preempted"
			x.Try = []string{"dynctl scale --decode N", "dynctl get queues"}
		}
	case cluster.StateDraining:
		explainDraining(x, v, a, assigned, w, now)
	case cluster.StateDrained:
		if w.Drain != nil {
			x.since(w.Drain.EndedAt)
		}
		x.Why, x.Next = "somebody drained it; it is safe to stop", "it stays so until it is resumed"
		x.Try = []string{"dynctl resume " + w.Name}
		if assigned && a.Desire == cluster.DesireRun {
			x.Next, x.Try = "it was resumed: its agent starts it", nil
		}
	case cluster.StateStopped:
		x.since(w.UpdatedAt)
		x.Why, x.Next = "it has ended as it was told to", "it leaves the list"
	case cluster.StateFailed:
		x.since(w.UpdatedAt)
		x.Why, x.Next = orDash(w.Reason), "its agent starts it again"
		if w.RetryAt.After(now) {
			x.Next += " in " + age(w.RetryAt.Sub(now))
		}
		x.Try = []string{"dynctl logs " + w.Name, "dynctl doctor"}
	case cluster.StateLost:
		x.Why, x.Next = orDash(w.Reason), "the controller gives it to another node that has room"
		x.Try = []string{"dynctl get nodes", "dynctl up"}
	}
	x.workerFacts(v, a, assigned, w)
	return x
}

func explainPending(x *explanation, v client.View, a cluster.Assignment, w cluster.Worker) {
	switch {
	case a.Node == "" && a.Unplaced != "":
		x.Why, x.Next = a.Unplaced, "it is placed when a node has room"
		x.Try = []string{"dynctl get nodes -o wide", "dynctl doctor"}
	case a.Node == "":
		x.Why, x.Next = "no node was chosen for it yet", "the controller places it"
		x.Try = []string{"dynctl get nodes"}
	default:
		x.Why, x.Next = v.NodeName(a.Node)+" is to run it and has not begun", "its agent starts it"
		if w.Reason != "" {
			x.Why = w.Reason
		}
		x.Try = []string{"dynctl logs", "dynctl explain node " + v.NodeName(a.Node)}
	}
}

func explainDraining(x *explanation, v client.View, a cluster.Assignment, assigned bool, w cluster.Worker, now time.Time) {
	x.Why = "its agent stops"
	switch {
	case assigned && a.Desire == cluster.DesireDrain:
		x.Why = "somebody drains it"
		x.Try = []string{"dynctl resume " + w.Name}
	case assigned && a.Desire == cluster.DesireRemove:
		x.Why = "it is more than the topology asks for"
	}
	x.Next = "it is drained when nothing is left, and then safe to stop"
	d := w.Drain
	if d == nil {
		return
	}
	x.since(d.StartedAt)
	x.fact("step", "%s: %s left, %d KV transfers to it and %d from it", d.Step, leftText(d), d.Incoming, d.Outgoing)
	if d.Acknowledged < d.Routers {
		x.fact("routers", "%s", routersText(d, v.Nodes))
	}
	for _, o := range d.Open {
		text := fmt.Sprintf("%s, %s out, for %s", o.RequestID, plural(o.OutTokens, "token"), duration(time.Duration(o.AgeMS)*time.Millisecond))
		if o.Why != "" {
			text += ": " + o.Why
		}
		x.fact("open", "%s", text)
	}
	switch {
	case d.Overdue:
		x.Next = "its deadline has passed; it goes on draining"
		x.Try = append(x.Try, "dynctl drain "+w.Name+" --deadline 0 --yes   # others continue its requests")
	case d.Deadline.After(now):
		x.fact("deadline", "in %s", clockLeft(d.Deadline.Sub(now)))
	}
}

func leftText(d *cluster.DrainStatus) string {
	return fmt.Sprintf("%d of %s", d.Left, plural(d.Sequences, "sequence"))
}

// workerFacts adds what does not depend on the state.
func (x *explanation) workerFacts(v client.View, a cluster.Assignment, assigned bool, w cluster.Worker) {
	place := orDash(w.Node)
	if d := deviceText(v.Nodes, w.Node, w.Device); d != "" {
		place = d + " of " + place
	}
	x.fact("role", "%s, on %s", w.Role, place)
	if w.Model != "" {
		x.fact("model", "%s %s", w.Model, w.Weights)
	}
	if w.TensorParallel > 1 {
		x.fact("ranks", "%d, tensor-parallel", w.TensorParallel)
	}
	if assigned {
		x.fact("asked", "%s, generation %d", a.Desire, a.Generation)
		if w.Generation != 0 && w.Generation != a.Generation {
			x.fact("asked", "it still runs generation %d", w.Generation)
		}
	} else {
		x.fact("asked", "nothing: no assignment is left")
	}
	if w.Lease != nil {
		x.fact("lease", "%s, %s left", w.InstanceID, leaseText(w.Lease))
	}
	if w.InstanceID != 0 && w.Stats.KVTotal > 0 {
		x.fact("load", "%s, %d waiting, %d of %d KV blocks", plural(w.Stats.Running, "sequence"), w.Stats.Waiting+w.Stats.RemoteWait, w.Stats.KVUsed(), w.Stats.KVTotal)
	}
	if w.Restarts > 0 {
		x.fact("restarts", "%d after failures", w.Restarts)
	}
}

// shownActivity is how many sequences, and how many transfers, an explanation lists for
// people.
const shownActivity = 10

// activity adds what the worker has in hand.
func (x *explanation) activity(a *cluster.Activity) {
	x.Activity = a
	if a.Error != "" {
		x.fact("activity", "not known: %s", a.Error)
		return
	}
	for _, s := range a.Sequences[:min(len(a.Sequences), shownActivity)] {
		x.fact("sequence", "%s %s, %d prompt (%d cached), %d out, %s, for %s", orDash(s.RequestID), s.State, s.PromptTokens, s.CachedTokens, s.OutTokens,
			plural(s.Blocks, "block"), duration(time.Duration(s.AgeMS)*time.Millisecond))
	}
	if n := a.SequencesTotal - shownActivity; n > 0 {
		x.fact("sequence", "and %d more", n)
	}
	for _, t := range a.Transfers[:min(len(a.Transfers), shownActivity)] {
		done := "-"
		if t.BlocksDone != nil {
			done = strconv.Itoa(*t.BlocksDone)
		}
		x.fact("transfer", "%s %s, peer %s over %s, %s, %s/%s, %s, for %s", t.Direction, t.RequestID, orDash(t.Peer), orDash(t.Transport), t.Kind, done,
			plural(t.Blocks, "block"), t.State, duration(time.Duration(t.AgeMS)*time.Millisecond))
	}
	if n := a.TransfersTotal - shownActivity; n > 0 {
		x.fact("transfer", "and %d more", n)
	}
}
