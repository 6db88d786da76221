package clustertest_test

import (
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/clustertest"
)

// An idle worker costs few goroutines and open files. What several workers of a process can
// do together, they do not each do for themselves.
func TestIdleWorkersAreSmall(t *testing.T) {
	for _, tc := range []struct {
		role              cluster.Role
		few, many         [2]int // workers: prefill, decode
		goroutines, files int    // at most, for one more worker
	}{
		{cluster.RoleDecode, [2]int{0, 2}, [2]int{0, 10}, 10, 5},
		{cluster.RolePrefill, [2]int{2, 1}, [2]int{10, 1}, 12, 5},
	} {
		t.Run(string(tc.role), func(t *testing.T) {
			t.Parallel()
			c := clustertest.Start(t, clustertest.Options{
				Prefill: tc.few[0], Decode: tc.few[1], Engine: cluster.EngineSpec{Backend: "mock"},
				Nodes: []clustertest.Node{{Process: true}},
			})
			least := footprints(t, c, func(clustertest.Footprint) bool { return false })
			c.Declare(tc.many[0], tc.many[1])
			c.WaitReady(tc.many[0], tc.many[1])
			more := tc.many[0] + tc.many[1] - tc.few[0] - tc.few[1]
			many := footprints(t, c, func(f clustertest.Footprint) bool {
				return f.Goroutines-least.Goroutines <= more*tc.goroutines && f.Files-least.Files <= more*tc.files+straySockets
			})
			t.Logf("%.1f goroutines and %.1f files a worker", float64(many.Goroutines-least.Goroutines)/float64(more), float64(many.Files-least.Files)/float64(more))
			if n := many.Goroutines - least.Goroutines; n > more*tc.goroutines {
				t.Errorf("%d more workers take %d goroutines\nbefore:\n%s\nnow:\n%s", more, n, least.Stacks, many.Stacks)
			}
			if n := many.Files - least.Files; n > more*tc.files+straySockets {
				t.Errorf("%d more workers take %d files", more, n)
			}
		})
	}
}

// straySockets may be open by chance, for a request of the test, say.
const straySockets = 2

// footprints returns the smallest footprint of the first node within a few seconds, or the
// first one that is enough: what has just started takes more for a while.
func footprints(t *testing.T, c *clustertest.Cluster, enough func(clustertest.Footprint) bool) (least clustertest.Footprint) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); ; {
		f, err := c.Nodes[0].Footprint()
		if err != nil {
			t.Fatal(err)
		}
		if least.Goroutines == 0 || f.Goroutines < least.Goroutines {
			least = f
		}
		if enough(f) {
			return f
		}
		if time.Now().After(end) {
			return least
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		}
	}
}
