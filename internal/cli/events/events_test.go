package events

import (
	"testing"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

func TestEventsThatAreWanted(t *testing.T) {
	kv := client.Event{Kind: client.EventKV, Worker: "worker-1"}
	route := client.Event{Kind: client.EventRouter, Worker: "worker-2", Decision: &cluster.RouterDecision{Prefill: "worker-1"}}
	change := client.Event{Kind: client.EventWorker, Worker: "worker-2"}
	gap := client.Event{Kind: client.EventGap, Of: client.EventKV, Worker: "worker-1"}
	routes := client.Event{Kind: client.EventGap, Of: client.EventRouter}
	some := client.Event{Kind: client.EventGap}
	list := []client.Event{kv, route, change, gap, routes, some}
	for _, tc := range []struct {
		name string
		o    Options
		want string // one letter for each of the list
	}{
		{"all", Options{}, "yyyyyy"},
		{"kv", Options{KV: true}, "ynnyny"},
		{"router and status", Options{Router: true, Status: true}, "nyynyy"},
		{"a worker", Options{Workers: []string{"worker-1"}}, "yynyyy"},
		{"status of a worker", Options{Status: true, Workers: []string{"worker-1"}}, "nnnnny"},
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
		{client.Event{Change: &client.WorkerChange{State: cluster.StatePending}}, "pending"},
		{client.Event{Change: &client.WorkerChange{From: cluster.StateLoading, State: cluster.StateFailed, Reason: "no memory"}}, "loading -> failed: no memory"},
		{client.Event{Change: &client.WorkerChange{From: cluster.StateDraining, State: cluster.StateDraining, Drain: cluster.DrainSequences, Left: 3}}, "draining finish-sequences, 3 left"},
		{client.Event{Kind: client.EventGap, Missed: 3, Of: client.EventKV}, "3 kv events were lost"},
		{client.Event{Kind: client.EventGap, Missed: 3}, "3 events were lost"},
	} {
		if got := eventText(tc.e); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}
