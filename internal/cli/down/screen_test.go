package down

import (
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/launch"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/progress"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/statedir"
)

func TestDownScreens(t *testing.T) {
	now := clitest.Noon.Add(-2 * time.Second)
	d := &downturn{session: &session.Session{Out: &output.Printer{Format: "table", Now: func() time.Time { return now }}, Config: config.Dynctl{Cluster: "lab"}}, o: &Options{}, begin: now, deadline: clitest.Noon.Add(58 * time.Second)}
	var shown progress.Screen
	d.screen = newDownScreen(d, capture{&shown})
	v := client.View{Nodes: clitest.Nodes(), Assignments: map[string]cluster.Assignment{}, Status: map[string]cluster.WorkerStatus{
		"worker-1": {Name: "worker-1", Role: cluster.RolePrefill, Node: "n2", Device: "gpu:0", State: cluster.StateReady},
		"worker-2": {Name: "worker-2", Role: cluster.RoleDecode, Node: "n1", Device: "cpu:0", State: cluster.StateDraining, Drain: &cluster.DrainStatus{Step: cluster.DrainSequences, Sequences: 9, Left: 4}},
	}}
	d.screen.workers(v)
	now = clitest.Noon
	delete(v.Status, "worker-1")
	d.screen.workers(v)
	clitest.Golden(t, "down-draining", clitest.Draw(shown))
	delete(v.Status, "worker-2")
	d.screen.workers(v)
	ending := func(name string, pid int, e launch.Ending) launch.Ending {
		e.Node, e.PID, e.Took = statedir.Node{Name: name}, pid, 700*time.Millisecond
		return e
	}
	d.screen.processes([]launch.Ending{ending("node-2", 12, launch.Ending{Gone: true})})
	d.screen.processes([]launch.Ending{ending("node-1", 11, launch.Ending{Hurried: true})})
	clitest.Golden(t, "down-stopping", clitest.Draw(shown))
	d.screen.processes([]launch.Ending{ending("node-1", 11, launch.Ending{Hurried: true, Killed: true, Gone: true})})
	clitest.Golden(t, "down-killed", clitest.Draw(shown))
}

// capture keeps the last screen.
type capture struct{ s *progress.Screen }

func (c capture) Show(s progress.Screen) { *c.s = s }

func (c capture) Close() {}
