package controller

import (
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
)

// The time that a node must be present before serving workers move to it. It doubles each
// time that the node was lost.
const (
	settleNode    = 10 * time.Second
	settleNodeMax = 5 * time.Minute
	// forgiveAfter is the time that a node must be present before its losses are
	// forgotten.
	forgiveAfter = 30 * time.Minute
)

// backoff remembers how often each node was lost, so that workers move back to a node
// only after it has been present for a while. Plan itself knows only the present.
type backoff struct {
	nodes    map[string]*nodeLosses // by node id
	declared store.Revision         // of the topology of the latest plan
}

type nodeLosses struct {
	lease  cluster.InstanceID
	away   bool
	since  time.Time // of its latest arrival or loss
	losses int
}

func newBackoff() *backoff { return &backoff{nodes: map[string]*nodeLosses{}} }

// settling records the present nodes and returns those that arrived lately. A node with a
// new lease counts as lost in between.
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
