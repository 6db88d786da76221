package live

import (
	"context"
	"errors"

	"github.com/dynctl/dynctl/internal/kube"
	"github.com/dynctl/dynctl/internal/store"
)

// Connector is what carries decisions out.
type Connector string

// Connectors.
const (
	// ConnectorTopology changes the topology, which the controller follows.
	ConnectorTopology Connector = "topology"
	// ConnectorVirtual writes the numbers to keys that a program follows, as Dynamo's virtual connector does.
	ConnectorVirtual Connector = "virtual"
	// ConnectorKubernetes changes the topology, and has Kubernetes run the pods that it needs.
	ConnectorKubernetes Connector = "kubernetes"
)

// rememberedChanges is how many changes are told.
const rememberedChanges = 10

// actor carries decisions out. A change is one compare-and-swap of what was observed. It is fenced: each leader
// first claims what it changes by writing it again as it is, and looks whether it leads between an observation
// and the write. A leader that was deposed either sees that then, or observed what was before the claim of the
// next one, and its write fails.
type actor struct {
	cfg Config

	claimed Connector // that this leader has claimed
	fence   store.Revision
	why     error // the claim failed, if it has
	client  *kube.Client
	targets Targets
	pods    *pods // claimed, with ConnectorKubernetes
}

// claim fences the leaders before off, once for a connector and its objects.
func (a *actor) claim(ctx context.Context, c Connector, t Targets) {
	if a.claimed == c && (c != ConnectorKubernetes || a.targets == t) {
		return
	}
	a.claimed = ""
	ctx, cancel := context.WithTimeout(ctx, writeWithin)
	defer cancel()
	claim := a.claimTopology
	switch c {
	case ConnectorVirtual:
		claim = a.claimVirtual
	case ConnectorKubernetes:
		claim = func(ctx context.Context) (store.Revision, error) {
			if err := a.claimPods(ctx, t); err != nil {
				return 0, err
			}
			return a.claimTopology(ctx)
		}
	}
	rev, err := claim(ctx)
	if err != nil {
		if (a.why == nil || a.why.Error() != err.Error()) && !errors.Is(err, errDeposed) {
			a.cfg.Log.Warn("the planner cannot act, will try again", "connector", c, "error", err)
		}
		a.why = err
		return
	}
	a.claimed, a.fence, a.why = c, rev, nil
}
