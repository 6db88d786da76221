package agent

import (
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/patience"
)

// The frontends of two nodes find each other over etcd, NATS and authenticated connections,
// and ask each other for their requests; a node with router.replica_sync: false takes no part.
func TestFrontendsOfTwoNodesShare(t *testing.T) {
	x := startExternal(t)
	start := func(name string, share bool) *run {
		cfg := x.config()
		cfg.Node.Name, cfg.Frontend.Enabled, cfg.Router.ReplicaSync = name, true, share
		return startAgent(t, cfg)
	}
	one, two, alone := start("node-1", true), start("node-2", true), start("node-3", false)
	series := func(r *run, text string) bool {
		_, all := get(t, r.front.URL()+"/metrics")
		return strings.Contains(all, "\ndynamo_frontend_replica_"+text)
	}
	for _, r := range []*run{one, two} {
		patience.Until(t, "the frontends know each other", func() bool { return series(r, "snapshots_total 1\n") })
		if !series(r, "flights 0\n") {
			t.Error("nothing is in flight, and something is counted")
		}
	}
	if series(alone, "snapshots_total") {
		t.Error("a frontend that is told not to takes part")
	}
}
