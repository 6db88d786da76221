package pane

import (
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/moment"
	"github.com/dynctl/dynctl/internal/tui/table"
)

// snapshot has workers with usual figures.
func snapshot() cluster.Snapshot {
	var s cluster.Snapshot
	for i, state := range []cluster.State{cluster.StateReady, cluster.StateDraining} {
		s.Workers = append(s.Workers, cluster.Worker{WorkerStatus: cluster.WorkerStatus{
			Name: cluster.WorkerName(i + 1), InstanceID: cluster.InstanceID(i + 1), Role: cluster.RolePrefill, Device: "gpu0 H200", State: state, UpdatedAt: time.Unix(0, 0),
			Stats: cluster.WorkerStats{Running: 12, KVTotal: 4096, KVActive: 100},
		}})
	}
	s.Caches = &cluster.KVCaches{Workers: []cluster.KVCache{{Worker: "worker-1", InstanceID: 1, Index: &cluster.KVIndexWorker{Recent: &cluster.KVAccuracy{}}}}}
	return s
}

func TestColumnsLeaveInOrder(t *testing.T) {
	m := moment.New(false, time.UTC)
	m.Width = 100
	m.Take(snapshot())
	p := Workers(m).(*workers)
	last := -1
	var left []string
	for w := 100; w > 20; w-- {
		cols := table.Fit(p.cols(), w)
		if last >= 0 && len(cols) < last {
			left = append(left, missing(p.cols(), cols, left)...)
		}
		last = len(cols)
		if cols[0].Title != "NAME" || cols[0].W < 8 {
			t.Fatalf("at %d cells the name has %d cells", w, cols[0].W)
		}
		end := 0
		for _, c := range cols {
			if c.X < end {
				t.Fatalf("at %d cells %s overlaps the column before", w, c.Title)
			}
			end = c.X + c.W
		}
		if end > w {
			t.Fatalf("at %d cells the row ends at %d", w, end)
		}
	}
	got := strings.Join(left, " ")
	if want := "UP FALSE% LEASE PREFIX% DEVICE KV BLOCKS TOK/S ROLE used/total SEQS"; got != want {
		t.Errorf("columns leave in the order %s, want %s", got, want)
	}
}

func missing(all []table.Column, stay []table.Placed, known []string) []string {
	here := map[string]bool{}
	for _, c := range stay {
		here[c.Title] = true
	}
	for _, k := range known {
		here[k] = true
	}
	var out []string
	for leave := range 20 { // several may leave at once
		for _, c := range all {
			if c.Leave == leave && !here[c.Title] {
				out = append(out, c.Title)
			}
		}
	}
	return out
}
