package explain

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/complete"
	"github.com/dynctl/dynctl/internal/cli/fleet"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// WorkerOptions explain a worker.
type WorkerOptions struct {
	Session *session.Session
	Worker  string
}

func workerCommand(a *command.App) *cobra.Command {
	return a.Command(command.Verb{
		Use: "worker <worker>", Short: "Say why a worker is in its state, since when, and what comes next",
		Long: `What the topology asks of the worker, what its agent has made of it and what the worker
says itself, put together, with the sequences and KV transfers that it has in hand.`,
		Examples: []string{
			"dynctl explain worker worker-3",
			"dynctl explain worker worker-3 -o json | jq -r .why",
			"dynctl explain worker worker-3 -o yaml",
		},
		Args: command.One("worker"), Complete: complete.First(complete.From(a, complete.WorkerNames)),
		See: []string{"dynctl explain lease", "dynctl logs", "dynctl get workers"},
		Options: func(s *session.Session, args []string) command.Runner {
			return &WorkerOptions{Session: s, Worker: args[0]}
		},
	})
}

// Run prints the explanation.
func (o *WorkerOptions) Run(ctx context.Context) error {
	s := o.Session
	action := "cannot explain " + o.Worker
	c, v, err := s.Look(ctx, action)
	if err != nil {
		return err
	}
	o.Worker = v.NameOf(o.Worker)
	workers := c.Workers(ctx, v)
	i := slices.IndexFunc(workers, func(w cluster.Worker) bool { return w.Name == o.Worker })
	if i < 0 {
		return fleet.NoWorker(s, action, o.Worker, v)
	}
	x := explainWorker(v, workers[i], s.Out.Now())
	if workers[i].InstanceID != 0 {
		a := c.Activity(ctx, v, o.Worker)
		x.activity(&a)
	}
	x.mark, x.paint = human.StateLook(workers[i].State, s.Out.Palette())
	return x.answer(s)
}

// explainWorker puts together what is known of a worker.
func explainWorker(v client.View, w cluster.Worker, now time.Time) *Explanation {
	x := &Explanation{Kind: "worker", Name: w.Name, State: string(w.State), Worker: &w}
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
		switch w.Role {
		case cluster.RolePrefill:
			x.Why = "the model is loaded and it takes prompts that decode workers or frontends give away"
		case cluster.RoleEncode:
			x.Why = "the vision tower is loaded and it turns images of requests into embeddings"
			if w.ServerStatus != nil {
				x.Why = "its server is ready and computes the embeddings of what requests show or play, for other servers"
			}
		}
	case cluster.StateDegraded:
		x.Why, x.Next = w.Reason, "it goes on serving"
		switch {
		case w.Unhealthy != "":
			x.Why = "its engine does not answer: " + w.Unhealthy
			x.Next = "frontends send requests to other workers, until it computes again"
			x.Try = []string{"dynctl logs " + w.Name, "dynctl restart " + w.Name}
		case w.Reason == "kv-high":
			x.Why = fmt.Sprintf("kv-high: %d of %d KV blocks are in use", w.Stats.KVUsed(), w.Stats.KVTotal)
			x.Next = "it is ready again when sequences have ended; until then some may be preempted"
			x.Try = []string{"dynctl scale --decode N", "dynctl get queues"}
		}
	case cluster.StateDraining:
		explainDraining(x, v, a, assigned, w, now)
	case cluster.StateSleeping:
		explainSleeping(x, a, assigned, w)
	case cluster.StateDrained:
		if w.Drain != nil {
			x.since(w.Drain.EndedAt)
		}
		x.Why, x.Next = "it was drained; it is safe to stop", "it stays drained until dynctl resume"
		x.Try = []string{"dynctl resume " + w.Name}
		if assigned && a.Desire == cluster.DesireRun {
			x.Next, x.Try = "it was resumed: its agent starts it", nil
		}
	case cluster.StateStopped:
		x.since(w.UpdatedAt)
		x.Why, x.Next = "it stopped as ordered", "it leaves the list"
	case cluster.StateFailed:
		x.since(w.UpdatedAt)
		x.Why, x.Next = human.OrDash(w.Reason), "its agent starts it again"
		if w.RetryAt.After(now) {
			x.Next += " in " + human.Age(w.RetryAt.Sub(now))
		}
		x.Try = []string{"dynctl logs " + w.Name, "dynctl doctor"}
	case cluster.StateLost:
		x.Why, x.Next = human.OrDash(w.Reason), "the controller gives it to another node that has room"
		x.Try, x.needsNode = []string{"dynctl get nodes"}, true
	}
	x.workerFacts(v, a, assigned, w)
	return x
}

func explainSleeping(x *Explanation, a cluster.Assignment, assigned bool, w cluster.Worker) {
	x.Why, x.Try = w.Reason, []string{"dynctl wake " + w.Name}
	switch {
	case !assigned || a.SleepLevel() == 0:
		x.Next = "it serves when its server is awake"
	case w.Sleep == 0:
		x.Next = "it takes no requests until dynctl wake"
	default:
		x.Why = fmt.Sprintf("dynctl sleep has put its server to sleep at level %d", w.Sleep)
		if w.Drain != nil {
			x.since(w.Drain.EndedAt)
		}
		x.Next = "it sleeps until dynctl wake"
	}
}

func explainPending(x *Explanation, v client.View, a cluster.Assignment, w cluster.Worker) {
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

func explainDraining(x *Explanation, v client.View, a cluster.Assignment, assigned bool, w cluster.Worker, now time.Time) {
	x.Why = "its agent stops"
	switch {
	case assigned && a.Desire == cluster.DesireDrain:
		x.Why = "it was told to drain"
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
	left := fmt.Sprintf("%d of %s", d.Left, human.Plural(d.Sequences, w.Role.Unit()))
	if w.Role.HoldsKV() {
		x.fact("step", "%s: %s left, %d KV transfers to it and %d from it", d.Step, left, d.Incoming, d.Outgoing)
	} else {
		x.fact("step", "%s: %s left, %s from it", d.Step.For(w.Role), left, human.Plural(d.Outgoing, "transfer"))
	}
	if d.Acknowledged < d.Routers {
		x.fact("routers", "%s", fleet.RoutersText(d, v.Nodes))
	}
	for _, o := range d.Open {
		text := o.RequestID
		if w.Role.HoldsKV() {
			text += fmt.Sprintf(", %s out", human.Plural(o.OutTokens, "token"))
		}
		text += ", for " + human.Duration(time.Duration(o.AgeMS)*time.Millisecond)
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
		x.fact("deadline", "in %s", human.Clock(d.Deadline.Sub(now)))
	}
}

// workerFacts adds what does not depend on the state.
func (x *Explanation) workerFacts(v client.View, a cluster.Assignment, assigned bool, w cluster.Worker) {
	place := human.OrDash(w.Node)
	if d := human.Place(v.Nodes, w); d != "" {
		place = d + " of " + place
	}
	x.fact("role", "%s, on %s", w.Role, place)
	if w.Model != "" {
		x.fact("model", "%s %s", w.Model, w.Weights)
	}
	if s := w.ServerStatus; s != nil && len(s.Adapters) > 0 {
		x.fact("adapters", "%s", human.Names(s.Adapters))
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
		x.fact("lease", "%s, %s left", w.InstanceID, human.Lease(w.Lease))
	}
	switch {
	case !fleet.Measured(w):
	case !w.Role.HoldsKV():
		st := &w.Stats
		x.fact("load", "%s in work, %d waiting", human.Plural(st.Running, "image"), st.Waiting)
		if w.ServerStatus != nil { // nobody knows what its server has in its cache, and it moves embeddings itself
			x.fact("images", "%s asked for, %s encoded", human.Commas(int(st.RequestsTotal)), human.Commas(int(st.EncodedTotal)))
			break
		}
		x.fact("images", "%s asked for, %s encoded, %s in the cache or in work already", human.Commas(int(st.RequestsTotal)), human.Commas(int(st.EncodedTotal)), human.Commas(int(st.ImagesCachedTotal)))
		if st.EmbeddingsLimit > 0 {
			x.fact("cache", "embeddings of %s, %s of %s", human.Plural(st.Embeddings, "image"), human.Bytes(st.EmbeddingsBytes), human.Bytes(st.EmbeddingsLimit))
		}
		x.fact("moved", "%s of embeddings in %s", human.Bytes(int64(st.TransferBytesTotal)), human.Plural(int(st.TransfersTotal), "transfer"))
	default:
		x.fact("load", "%s, %d waiting, %d of %d KV blocks", human.Plural(w.Stats.Running, "sequence"), w.Stats.Waiting+w.Stats.RemoteWait, w.Stats.KVUsed(), w.Stats.KVTotal)
	}
	if w.Restarts > 0 {
		x.fact("restarts", "%d after failures", w.Restarts)
	}
}

// shownActivity limits the sequences, and the transfers, that an explanation lists for
// people.
const shownActivity = 10

// activity adds what the worker has in hand.
func (x *Explanation) activity(a *cluster.Activity) {
	x.Activity = a
	if a.Error != "" {
		x.fact("activity", "not known: %s", a.Error)
		return
	}
	for _, s := range a.Sequences[:min(len(a.Sequences), shownActivity)] {
		x.fact("sequence", "%s %s, %d prompt (%d cached), %d out, %s, for %s", human.OrDash(s.RequestID), s.State, s.PromptTokens, s.CachedTokens, s.OutTokens,
			human.Plural(s.Blocks, "block"), human.Duration(time.Duration(s.AgeMS)*time.Millisecond))
	}
	if n := a.SequencesTotal - shownActivity; n > 0 {
		x.fact("sequence", "and %d more", n)
	}
	for _, m := range a.Images[:min(len(a.Images), shownActivity)] {
		cached := ""
		if m.Cached {
			cached = ", cached"
		}
		x.fact("image", "%s %s%s, for %s, %s, for %s", human.OrDash(m.RequestID), m.State, cached, m.Worker, human.Plural(m.Tokens, "token"), human.Duration(time.Duration(m.AgeMS)*time.Millisecond))
	}
	if n := a.ImagesTotal - shownActivity; n > 0 {
		x.fact("image", "and %d more", n)
	}
	for _, t := range a.Transfers[:min(len(a.Transfers), shownActivity)] {
		done := "-"
		if t.BlocksDone != nil {
			done = strconv.Itoa(*t.BlocksDone)
		}
		x.fact("transfer", "%s %s, peer %s over %s, %s, %s/%s, %s, for %s", t.Direction, t.RequestID, human.OrDash(t.Peer), human.OrDash(t.Transport), t.Kind, done,
			human.Plural(t.Blocks, "block"), t.State, human.Duration(time.Duration(t.AgeMS)*time.Millisecond))
	}
	if n := a.TransfersTotal - shownActivity; n > 0 {
		x.fact("transfer", "and %d more", n)
	}
}
