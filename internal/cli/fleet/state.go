package fleet

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// LastServing reports whether a worker serves and no other one of its role does, and warns
// of that.
func LastServing(sess *session.Session, name string, v client.View) bool {
	serving, w := 0, v.Worker(name)
	for _, o := range v.Workers() {
		if o.Role == w.Role && o.State.Serving() && o.Desire == cluster.DesireRun {
			serving++
		}
	}
	if !w.State.Serving() || serving != 1 {
		return false
	}
	if w.Role == cluster.RoleDecode {
		sess.Out.Note("%s is the only decode worker that serves: new requests wait up to %s for another one", name, cluster.SuccessorWait)
	} else if w.Role == cluster.RoleEncode {
		sess.Out.Note("%s is the only encode worker that serves: workers that compute prompts encode images meanwhile", name)
	} else {
		sess.Out.Note("%s is the only %s worker that serves", name, w.Role)
	}
	return true
}

// Safe reports whether a worker says that nothing of it is left. Nothing else counts.
func Safe(st cluster.WorkerStatus) bool {
	return (st.State == cluster.StateDrained || st.State == cluster.StateStopped || st.State == cluster.StateSleeping) && st.Drain != nil && st.Drain.Safe
}

// DrainText says in a few words what the drain of a worker waits for.
func DrainText(w cluster.Worker) string {
	d := w.Drain
	switch {
	case d.Left > 0:
		return fmt.Sprintf("%d of %s left", d.Left, human.Plural(max(d.Sequences, d.Left), w.Role.Unit()))
	case d.Step == cluster.DrainIncoming:
		return human.Plural(d.Incoming, "transfer") + " pending"
	case d.Step == cluster.DrainOutgoing && d.Outgoing > 0:
		return fmt.Sprintf("%d held for others", d.Outgoing)
	}
	return d.Step.For(w.Role)
}

// RoutersText says how many routers have taken notice that a worker takes no new requests.
func RoutersText(s *cluster.DrainStatus, nodes []cluster.Node) string {
	text := fmt.Sprintf("%d of %s acknowledged", s.Acknowledged, human.Plural(s.Routers, "router"))
	silent := NodesNamed(nodes, s.Unacknowledged)
	if len(silent) == 0 {
		return text
	}
	if more := s.Routers - s.Acknowledged - len(silent); more > 0 {
		silent = append(silent, fmt.Sprintf("… %d more", more))
	}
	return text + "; no answer from " + strings.Join(silent, ", ")
}

// NodesNamed are the names of nodes with these ids.
func NodesNamed(nodes []cluster.Node, ids []string) (names []string) {
	for _, id := range ids {
		names = append(names, client.View{Nodes: nodes}.NodeName(id))
	}
	return names
}

// StartFailure is the error about a worker that fails when it starts.
func StartFailure(w cluster.Worker) error {
	return &exit.Failure{
		Action: w.Name + " did not start", Err: errors.New(w.Reason),
		Facts: []string{"its agent goes on trying"}, Tries: []string{"dynctl logs " + w.Name},
	}
}

// Measured reports whether the figures of a worker are those of a loaded model.
func Measured(w cluster.Worker) bool {
	up := w.State.Serving() || w.State == cluster.StateDraining
	return w.InstanceID != 0 && (w.Stats.KVTotal > 0 || !w.Role.HoldsKV() && up)
}

// OpenSequences counts a worker's running and waiting sequences, or images.
func OpenSequences(w cluster.Worker) int {
	return w.Stats.Running + w.Stats.Waiting + w.Stats.RemoteWait
}

// Work counts what workers have in hand.
type Work struct {
	Sequences, Images int
	none              cluster.Role // of the worker whose work is none
}

// Add counts n pieces of the work of a role.
func (k *Work) Add(r cluster.Role, n int) {
	if r.HoldsKV() {
		k.Sequences += n
	} else {
		k.Images += n
	}
	k.none = r
}

// Sum is the number of all pieces.
func (k *Work) Sum() int { return k.Sequences + k.Images }

// String is like "3 sequences and 1 image".
func (k *Work) String() string {
	sequences, images := human.Plural(k.Sequences, "sequence"), human.Plural(k.Images, "image")
	switch {
	case k.Sequences > 0 && k.Images > 0:
		return sequences + " and " + images
	case k.Images > 0, k.Sequences == 0 && k.none == cluster.RoleEncode:
		return images
	}
	return sequences
}
