package pane

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/moment"
	"github.com/dynctl/dynctl/internal/tui/table"
)

// longSnapshot has names and numbers as long as they get in production.
func longSnapshot() cluster.Snapshot {
	s := snapshot()
	s.Time = time.Unix(3600, 0)
	lease := 6 * time.Second
	for i := range s.Workers {
		w := &s.Workers[i]
		w.Device, w.Node, w.Model = "gpu0 NVIDIA H200 SXM 141GB", "n1", "organization/some-model-70b-instruct"
		w.InstanceID, w.HeardAt, w.Lease = cluster.InstanceID(0x19bfa207343ef900+i), s.Time.Add(-5*time.Second), &lease
	}
	s.Workers[0].Stale = true
	s.Workers[1].State, s.Workers[1].Reason = cluster.StateDegraded, "needs 9.4 GiB, 3.1 GiB free on gpu:0"
	s.Nodes = []cluster.Node{{ID: "n1", Name: "inference-node-17", Host: "inference-17.rack-3.example.com", Version: "v1.12.0-rc.3", FrontendURL: "http://inference-17.rack-3.example.com:8000",
		Devices: []cluster.Device{{ID: "gpu:0", Name: "NVIDIA H200"}, {ID: "gpu:1", Name: "NVIDIA H200"}}}}
	s.Events = []cluster.KVEvent{
		{Worker: "worker-1", Kind: cluster.KVStored, Count: 12, StartPosition: 1000, Stored: []cluster.KVStoredBlock{{BlockHash: 0x9f3a77c0b41e0001}}},
		{Worker: "worker-2", Kind: cluster.KVRemoved, Count: 1, Removed: []uint64{0x77c0}, Reason: "lru"},
	}
	s.Decisions = []cluster.RouterDecision{{RequestID: "chatcmpl-0d2a33f6c34b8faa340222cb", Phase: cluster.RoleDecode, Chosen: "worker-2", Prefill: moment.LocalPrefill, PrefillWhy: "prefill queue full",
		Policy: "power-of-two", Blocks: 12345, Overlap: 12000, Candidates: []cluster.RouteCandidate{{Worker: "worker-2", Cost: 123456.7}}}}
	s.Leases = []cluster.Lease{{ID: 0x19bfa207343ef900, Owner: "worker-1", TTL: 10 * time.Second, Left: lease}}
	s.Caches.Workers[0].InstanceID, s.Caches.Workers[0].Index.Epoch, s.Caches.Workers[0].Index.Device = s.Workers[0].InstanceID, 0x9f3a77c0b41e0001, 12345678
	return s
}

// While a cell is cut, no column has more room than it needs, and no gap is wider than one
// cell; a column with all the room that it asks for cuts nothing.
func TestNothingIsCutBesideFreeRoom(t *testing.T) {
	m := moment.New(false, time.UTC)
	m.Width = 300
	m.Take(longSnapshot())
	for name, l := range map[string]*list{
		"workers": &Workers(m).(*workers).list, "leases": &Leases(m).(*leases).list, "events": &Events(m).(*events).list,
		"decisions": &Decisions(m).(*decisions).list, "nodes": &Nodes(m).(*nodes).list, "caches": &Caches(m).(*caches).list,
	} {
		t.Run(name, func(t *testing.T) {
			cols := l.columns()
			l.Update()
			cut := false
			for width := 20; width <= 298; width++ {
				placed := table.Fit(cols, width)
				cut = false
				for _, c := range placed {
					cut = cut || c.W < max(c.Width, c.Full)
				}
				end := -1
				for _, c := range placed {
					if cut && (c.X > end+1 || c.W > max(c.Width, c.Full)) {
						t.Fatalf("at %d cells something is cut, and %s has %d cells at %d, the column before ends at %d", width, c.Title, c.W, c.X, end)
					}
					end = c.X + c.W
					for row := range l.rows.Total() {
						spans := c.Cell(row, c.W)
						text := fmt.Sprint(spans)
						if c.W >= max(c.Width, c.Full) && (draw.Width(spans) > c.W || strings.Contains(text, m.Glyphs.More)) {
							t.Fatalf("at %d cells %s of row %d reads %s in %d cells", width, c.Title, row, text, c.W)
						}
					}
				}
			}
			if cut {
				t.Error("something is cut on the widest screen")
			}
		})
	}
}
