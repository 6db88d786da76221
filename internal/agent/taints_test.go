package agent

import (
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
)

// The taints of a node are in the model cards of its workers, where frontends read them.
func TestTaintsOfTheNode(t *testing.T) {
	n := startTestNode(t)
	n.cfg.Node.Taints = []string{"zone=a", "fast"}
	n.assign()
	st := n.reaches(cluster.StateReady)
	kv, err := n.mem.Get(t.Context(), cluster.CardKey(cluster.DefaultNamespace, st.Role.Component(), cluster.EndpointGenerate, st.InstanceID))
	if err != nil {
		t.Fatal(err)
	}
	card, err := store.DecodeJSON[cluster.ModelCard](kv)
	if err != nil || !slices.Equal(card.Runtime.Taints, n.cfg.Node.Taints) {
		t.Errorf("%v: the card has %v", err, card.Runtime.Taints)
	}
}
