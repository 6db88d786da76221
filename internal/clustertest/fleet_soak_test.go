package clustertest_test

import (
	"context"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/clustertest"
)

// fleetVariable holds the number of workers of TestSoakOfAFleet, such as 256.
const fleetVariable = "DYNCTL_SOAK_WORKERS"

// A fleet of mock workers in four processes is under load while single workers are drained,
// all are restarted in turns, and a process with a quarter of them is killed.
func TestSoakOfAFleet(t *testing.T) {
	duration := soakTime(t)
	workers := 64
	if text := os.Getenv(fleetVariable); text != "" {
		var err error
		if workers, err = strconv.Atoi(text); err != nil || workers < 8 {
			t.Fatalf("%s=%q: want a number of workers, at least 8", fleetVariable, text)
		}
	}
	prefill := workers / 4
	c := clustertest.Start(t, clustertest.Options{
		Prefill: prefill, Decode: workers - prefill, Engine: cluster.EngineSpec{Backend: cluster.BackendMock, KVBlocks: 64}, Timeout: 5 * time.Minute,
		Nodes: []clustertest.Node{{Process: true}, {Process: true}, {Process: true}, {Process: true}},
	})
	c.WaitRemotePrefill()
	allServe := func(v client.View) bool {
		ws := v.Workers()
		return len(ws) == workers && !slices.ContainsFunc(ws, func(w cluster.Worker) bool { return !w.State.Serving() })
	}
	runSoak(&soak{t: t, c: c, lasting: [2]int{0, 1}, workers: workers / len(c.Nodes)}, duration, []soakFault{
		{"drain and resume", func(s *soak) {
			decode := slices.DeleteFunc(c.LiveStats(), func(st cluster.WorkerStatus) bool { return st.Role != cluster.RoleDecode || !st.State.Serving() })
			if len(decode) > 0 {
				s.drainOne(decode[s.r.IntN(len(decode))].Name)
			}
		}},
		{"rolling restart", func(*soak) {
			var topo cluster.Topology
			c.Insist(func(ctx context.Context) (err error) {
				topo, err = c.Client.Declare(ctx, func(t *cluster.Topology, _ bool) error { t.Restarts++; return nil })
				return err
			})
			c.WaitView("all workers are restarted", func(v client.View) bool {
				done := 0
				for _, a := range v.Assignments {
					if a.Restarts == topo.Restarts && a.Desire == cluster.DesireRun && a.Replaces == "" {
						done++
					}
				}
				return done == workers && allServe(v)
			})
		}},
		{"kill and restart", func(s *soak) {
			victim := c.Nodes[2+s.r.IntN(2)]
			victim.Kill()
			victim.Restart()
			c.WaitView("all workers serve again", allServe)
		}},
	})
}
