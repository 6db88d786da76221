package controller

import (
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
)

// How long a node must have been there before workers move to it that serve elsewhere:
// longer after each time that it was lost.
const (
	settleNode    = 10 * time.Second
	settleNodeMax = 5 * time.Minute
	// forgiveAfter is how long a node must stay for its losses to be forgotten.
	forgiveAfter = 30 * time.Minute
)

// backoff remembers which nodes were lost, and how often, so that workers move back to a
// node only after it has stayed for a while. Plan itself sees only the present.
type backoff struct {
	nodes    map[string]*nodeLosses // by node id
	declared store.Revision         // of the topology that was planned last
}

type nodeLosses struct {
	lease  cluster.InstanceID
	away   bool
	since  time.Time // when it came, or left
	losses int
}

func newBackoff() *backoff { return &backoff{nodes: map[string]*nodeLosses{}} }

// settling takes in which nodes there are and returns those that came lately. Under a
// new lease a node has been away.
func (b *backoff) settling(nodes []cluster.Node, now time.Time) map[string]bool {
	out := map[string]bool{}
	there := map[string]bool{}
	for _, n := range nodes {
		there[n.ID] = true
		m := b.nodes[n.ID]
		switch {
		case m == nil:
			m = &nodeLosses{lease: n.InstanceID, since: now}
			b.nodes[n.ID] = m
		case m.away || m.lease != n.InstanceID:
			m.losses++
			m.lease, m.away, m.since = n.InstanceID, false, now
		case now.Sub(m.since) > forgiveAfter:
			m.losses = 0
		}
		if now.Sub(m.since) < min(settleNode<<min(m.losses, 16), settleNodeMax) {
			out[n.ID] = true
		}
	}
	for id, m := range b.nodes {
		switch {
		case there[id]:
		case !m.away:
			m.away, m.since = true, now
		case now.Sub(m.since) > forgiveAfter:
			delete(b.nodes, id)
		}
	}
	return out
}
