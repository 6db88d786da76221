package agent

import (
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/store"
)

// An alarm is in the node's record and the metrics until it is over.
func TestAlarmsAreTold(t *testing.T) {
	t.Parallel()
	n := startTestNode(t)
	record := func() cluster.Node {
		node, _, err := store.GetJSON[cluster.Node](t.Context(), n.mem, cluster.NodeKey(n.nodeID))
		if err != nil {
			t.Fatal(err)
		}
		return node
	}
	n.checkDisk(diskLow-1, nil)
	n.checkDisk(logReserve-1, nil)
	patience.Until(t, "the alarm is in the record", func() bool { return len(record().Alarms) == 1 })
	if got := n.alarms.texts(); len(got) != 1 || !strings.Contains(got[0], "logs are not written") {
		t.Errorf("alarms: %q", got)
	}
	n.checkDisk(diskLow, nil)
	patience.Until(t, "the record has no alarm", func() bool { return len(record().Alarms) == 0 })
}

// A store that has forgotten is an alarm until all is written again.
func TestForgetfulStoreIsAnAlarm(t *testing.T) {
	t.Parallel()
	n, topology := forgetful(t)
	raised := func() bool {
		return slices.ContainsFunc(n.alarms.texts(), func(s string) bool { return strings.Contains(s, "the store lost") })
	}
	if _, err := n.mem.DeletePrefix(t.Context(), "/dynctl/"+n.cfg.Namespace+"/"); err != nil {
		t.Fatal(err)
	}
	patience.Until(t, "an alarm", raised)
	patience.Until(t, "the topology is written again", func() bool { return n.storedTopology().Generation == topology.Generation })
	patience.Until(t, "the alarm is over", func() bool { return !raised() })
}
