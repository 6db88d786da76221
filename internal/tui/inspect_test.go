package tui

import (
	"slices"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

func TestInspectAndBack(t *testing.T) {
	sc := lab(t)
	sc.press("j", "j", "enter")
	sc.has("dynctl top › worker-3", "sequences (14)", "KV blocks 3602/4096", "router decisions", "r-8f21")
	s := labSnapshot()
	s.Workers = slices.Delete(s.Workers, 2, 3)
	sc.send(snapshotMsg{s, noon()})
	sc.has("gone from the list")
	sc.press("esc")
	sc.has("1 workers (6)")

	sc.press("6", "enter")
	sc.has("route r-8f21", "chosen", "+6.0", "excluded: draining")
	s.Decisions = nil
	sc.send(snapshotMsg{s, noon()})
	sc.has("no longer among the newest decisions")

	sc = newScreen(t, labSnapshot(), 60, 12, Options{})
	sc.press("G", "enter")
	sc.lacks("generated")
	sc.press("G")
	sc.has("none among the newest")
	sc.press("g")
	sc.has("sequences (3)")
}

// Every screen of a thing says so when that has gone, and leads on to what it belongs to.
func TestDrillingDown(t *testing.T) {
	sc := lab(t)
	sc.press("2", "enter")
	sc.has("lease 7f06", "left           ", "6.4s", "worker worker-6", "decode/generate", "ends at        12:04:37")
	sc.press("d")
	sc.has("Drain worker-6?")
	sc.press("esc", "enter")
	sc.has("› worker-6", "sequences (2)")
	sc.press("enter")
	sc.has("node n1", "gpu:3", "avx512 bf16", "256 GiB", "61%", "workers (7)")
	sc.press("y")
	sc.has("id: n1", "pid: 4711")
	sc.press("esc", "esc", "2", "G", "k", "enter")
	sc.has("lease 7e01", "node n1", "no endpoint is registered under it")

	sc.press("3", "enter")
	sc.has("r-8f22   worker-3     576      36  63.0 MiB  0.9s  29.1s  in work", "m-6", "dead letters")
	sc.press("esc", "n")
	sc.has("n nodes (1)", "15,333/25,600", "22.2k", "54", "2h12m")
	sc.press("/", "type:nothing", "enter")
	sc.has("n nodes (0 of 1)")
	sc.press("esc", "enter", "esc", "esc")
	sc.has("1 workers", "3 queue depth") // where n was pressed
	sc.press("n", "tab")
	sc.has("›4 latency")
	sc.press(":", "type:inspect n1", "enter")
	sc.has("node n1")

	s := labSnapshot()
	s.Nodes, s.Leases, s.Queue = nil, nil, cluster.QueueStats{}
	sc.send(snapshotMsg{s, noon()})
	sc.has("no node n1 any more")
	sc.press("y")
	sc.has("y: the node has left the cluster")
	sc.press("esc", "3", "enter")
	sc.has("the queue is not known", "no samples yet")
	sc = lab(t)
	sc.press("2", "enter")
	sc.send(snapshotMsg{s, noon()})
	sc.has("this lease of worker-6 has ended")
	sc.press("y")
	sc.has("y: the lease has ended")
}

func TestYAMLOfARow(t *testing.T) {
	sc := newScreen(t, labSnapshot(), 100, 50, Options{})
	sc.press("G", "y")
	sc.has("name: worker-7", "state: draining", "stats:", "  running: 3", "open:", "- request_id: r-8e77")
	sc.press("esc")
	sc.lacks("name: worker-7")
	sc.press("6", "y")
	sc.has("request_id: r-8f21", "candidates:")
}

// The lease of a service says what it serves, whether it works and since when.
func TestLeaseOfAService(t *testing.T) {
	s := labSnapshot()
	s.Leases = append(s.Leases, cluster.Lease{
		ID: 0x7f99, Owner: "attached-1a2b", TTL: 10 * time.Second, Left: 9900 * time.Millisecond, Renewed: 100 * time.Millisecond, Endpoints: []string{"backend/generate"},
		Program: &cluster.Program{
			Name: "attached-1a2b", Kind: cluster.ProgramService, InstanceID: 0x7f99, Node: s.Nodes[0].ID, URL: "http://127.0.0.1:9/x", Model: "echo",
			Reason: "connection refused", Since: noon().Add(-90 * time.Second), StartedAt: noon().Add(-2 * time.Hour),
		},
	})
	sc := newScreen(t, s, 120, 40, Options{})
	sc.press("2", "/", "type:attached", "enter", "enter")
	sc.has("lease 7f99", "service attached-1a2b", "degraded", "connection refused", "http://127.0.0.1:9/x", "echo", "backend/generate", "for            1m ", "joined         2h00m ago", "at             "+s.Nodes[0].Name)
}
