package events

import (
	"testing"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/planner"
)

func TestEventsThatAreWanted(t *testing.T) {
	kv := client.Event{Kind: client.EventKV, Worker: "worker-1"}
	route := client.Event{Kind: client.EventRouter, Worker: "worker-2", Decision: &cluster.RouterDecision{Prefill: "worker-1"}}
	change := client.Event{Kind: client.EventWorker, Worker: "worker-2"}
	gap := client.Event{Kind: client.EventGap, Of: client.EventKV, Worker: "worker-1"}
	routes := client.Event{Kind: client.EventGap, Of: client.EventRouter}
	some := client.Event{Kind: client.EventGap}
	image := client.Event{Kind: client.EventEncode, Worker: "worker-3", Encoding: &cluster.Encoding{For: "worker-1"}}
	plan := client.Event{Kind: client.EventPlanner}
	list := []client.Event{kv, route, change, gap, routes, some, image, plan}
	for _, tc := range []struct {
		name string
		o    Options
		want string // one letter for each of the list
	}{
		{"all", Options{}, "yyyyyyyy"},
		{"kv", Options{KV: true}, "ynnynynn"},
		{"router and status", Options{Router: true, Status: true}, "nyynyynn"},
		{"a worker", Options{Workers: []string{"worker-1"}}, "yynyyyyn"},
		{"planner", Options{Planner: true}, "nnnnnyny"},
		{"encoded images", Options{Encode: true}, "nnnnnyyn"},
		{"encoded images of a worker", Options{Encode: true, Workers: []string{"worker-3"}}, "nnnnnyyn"},
		{"encoded images of another worker", Options{Encode: true, Workers: []string{"worker-2"}}, "nnnnnynn"},
		{"status of a worker", Options{Status: true, Workers: []string{"worker-1"}}, "nnnnnynn"},
	} {
		got := ""
		for _, e := range list {
			got += map[bool]string{true: "y", false: "n"}[tc.o.wants(e)]
		}
		if got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

func TestEventTexts(t *testing.T) {
	for _, tc := range []struct {
		e    client.Event
		want string
	}{
		{client.Event{KV: &cluster.KVEvent{Kind: cluster.KVRemoved, Count: 8, Removed: []uint64{0x77c0 << 48}, Reason: "lru"}}, "removed -8 77c0… lru"},
		{client.Event{KV: &cluster.KVEvent{Kind: cluster.KVCleared, Count: 310}}, "cleared -310"},
		{client.Event{Decision: &cluster.RouterDecision{RequestID: "r-1", Phase: cluster.RolePrefill, Blocks: 2}}, "r-1 prefill, none chosen"},
		{client.Event{Decision: &cluster.RouterDecision{RequestID: "r-1", Phase: cluster.RoleDecode, Chosen: "worker-1", Prefill: "local", DecodeNS: 1500e6}}, "r-1 decode, overlap 0/0 blocks, prefill local, decoded in 1500.0 ms"},
		{client.Event{Encoding: &cluster.Encoding{RequestID: "r-1", For: "worker-2", Content: "3fe1a20b77c4", Rows: 64, TookNS: 612e6}}, "image 3fe1a20b77c4 of r-1 for worker-2, 64 rows, encoded in 612.0 ms"},
		{client.Event{Encoding: &cluster.Encoding{RequestID: "r-1", For: "worker-2", Content: "3fe1a20b77c4", TookNS: 612e6}}, "item 3fe1a20b77c4 of r-1 for worker-2, encoded in 612.0 ms"},
		{client.Event{Encoding: &cluster.Encoding{RequestID: "r-1", For: "worker-2", Content: "3fe1a20b77c4", Rows: 1, Cached: true}}, "image 3fe1a20b77c4 of r-1 for worker-2, 1 row, computed before"},
		{client.Event{Change: &client.WorkerChange{State: cluster.StatePending}}, "pending"},
		{client.Event{Change: &client.WorkerChange{From: cluster.StateLoading, State: cluster.StateFailed, Reason: "no memory"}}, "loading -> failed: no memory"},
		{client.Event{Change: &client.WorkerChange{From: cluster.StateDraining, State: cluster.StateDraining, Drain: cluster.DrainSequences, Left: 3}}, "draining finish-sequences, 3 left"},
		{client.Event{Planner: &planner.Report{Decision: planner.Decision{Refusal: planner.RefusedCoolDown}, Explanation: []string{"2P2D stays.", "more"}}}, "cool_down: 2P2D stays."},
		{client.Event{Planner: &planner.Report{Decision: planner.Decision{Cause: planner.CauseForecast, Proposal: planner.Plan{Decode: 1}}, Explanation: []string{"0 -> 1."}}}, "forecast: 0 -> 1."},
		{client.Event{Planner: &planner.Report{Pool: "small", Decision: planner.Decision{Cause: planner.CauseForecast, Proposal: planner.Plan{Decode: 1}}, Explanation: []string{"0 -> 1."}}}, "pool small: forecast: 0 -> 1."},
		{client.Event{Planner: &planner.Report{Decision: planner.Decision{Refusal: planner.RefusedStaleData, Detail: "worker-1 is silent"}, Explanation: []string{"1P1D stays."}}}, "stale_data: 1P1D stays. worker-1 is silent."},
		{client.Event{Kind: client.EventGap, Missed: 3, Of: client.EventKV}, "3 kv events were lost"},
		{client.Event{Kind: client.EventGap, Missed: 3}, "3 events were lost"},
	} {
		if got := eventText(tc.e); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}
