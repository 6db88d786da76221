package drain

import (
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
)

func TestDrainScreens(t *testing.T) {
	now := clitest.Noon
	drainer := func(s *cluster.DrainStatus, seen ...cluster.DrainStep) *drainer {
		d := &drainer{
			drainOrder: drainOrder{session: &session.Session{Out: &output.Printer{Format: "table", Now: func() time.Time { return now }}, Config: config.Dynctl{Cluster: "lab"}}, name: "worker-7", ordered: clitest.Noon.Add(-19 * time.Second), deadline: clitest.Noon.Add(281 * time.Second)}, nodes: clitest.Nodes(), seen: s,
			worker: cluster.Worker{WorkerStatus: cluster.WorkerStatus{Name: "worker-7", Role: cluster.RoleDecode, Node: "n2", Device: "gpu:0", State: cluster.StateDraining}},
			steps:  map[cluster.DrainStep]time.Time{},
		}
		for i, step := range seen {
			d.steps[step] = d.ordered.Add(time.Duration(i) * 300 * time.Millisecond)
		}
		return d
	}
	open := []cluster.OpenSequence{{RequestID: "r-8e77", OutTokens: 1204, AgeMS: 128000}, {RequestID: "r-8f02", OutTokens: 310, AgeMS: 31000}, {RequestID: "r-8f0a", OutTokens: 12, AgeMS: 2000}}
	leaving := drainer(&cluster.DrainStatus{Step: cluster.DrainDiscovery, Sequences: 14, Left: 14, Routers: 2, Acknowledged: 1, Unacknowledged: []string{"n2"}}, cluster.DrainDiscovery)
	finishing := drainer(&cluster.DrainStatus{Step: cluster.DrainSequences, StartedAt: clitest.Noon.Add(-19 * time.Second), Sequences: 14, Left: 3, Finished: 11, Open: open, Routers: 2, Acknowledged: 2},
		cluster.DrainDiscovery, cluster.DrainAdmission, cluster.DrainIncoming, cluster.DrainSequences)
	clitest.Golden(t, "drain-begins", clitest.Draw(view{drainer(nil)}.screen(now, false)))
	clitest.Golden(t, "drain-leaving", clitest.Draw(view{leaving}.screen(now, false)))
	clitest.Golden(t, "drain-finishing", clitest.Draw(view{finishing}.screen(now, false)))
	stale := *finishing
	stale.stale = clitest.Noon.Add(-7 * time.Second)
	clitest.Golden(t, "drain-stale", clitest.Draw(view{&stale}.screen(now, false)))
	done := drainer(&cluster.DrainStatus{Step: cluster.DrainLease, StartedAt: clitest.Noon.Add(-19 * time.Second), EndedAt: clitest.Noon, Sequences: 14, Finished: 13, Moved: 1, Routers: 14, Acknowledged: 2, Unacknowledged: []string{"n1", "n2"}, Safe: true}, cluster.DrainSteps...)
	clitest.Golden(t, "drain-done", clitest.Draw(view{done}.screen(now, true)))
	images := drainer(&cluster.DrainStatus{Step: cluster.DrainSequences, StartedAt: clitest.Noon.Add(-19 * time.Second), Sequences: 3, Left: 1, Finished: 2, Open: open[2:], Routers: 2, Acknowledged: 2}, cluster.DrainDiscovery, cluster.DrainAdmission, cluster.DrainIncoming, cluster.DrainSequences)
	images.worker.Role = cluster.RoleEncode
	clitest.Golden(t, "drain-images", clitest.Draw(view{images}.screen(now, false)))
	if err := images.late(now); !strings.Contains(err.Error(), "1 of 3 images left") {
		t.Errorf("late: %v", err)
	}
	images.seen = &cluster.DrainStatus{Step: cluster.DrainOutgoing, Sequences: 3, Outgoing: 1}
	if err := images.late(now); !strings.Contains(err.Error(), "it waits at outgoing-embeddings") {
		t.Errorf("late: %v", err)
	}
	if got, want := done.sentence(now), "worker-7 drained in 19.0s: 13 finished, 1 moved, 0 cancelled. safe to stop."; got != want {
		t.Errorf("got %q", got)
	}
	cut := drainer(&cluster.DrainStatus{Step: cluster.DrainLease, StartedAt: clitest.Noon.Add(-time.Second), EndedAt: clitest.Noon, Sequences: 2, CutOff: 2, Safe: true}, cluster.DrainSteps...)
	cut.alone = true
	if got, want := cut.sentence(now), "worker-7 drained in 1.0s: 0 finished, 0 moved, 0 cancelled, 2 cut off; what was cut off fails unless another decode worker serves within 15s. safe to stop."; got != want {
		t.Errorf("got %q", got)
	}
}
