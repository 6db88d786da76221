package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
)

// listening runs dynctl events -f until stop, which returns what it printed; also sees it,
// too.
func (w *world) listening(also io.Writer, args ...string) (seen *terminal, stop func() result) {
	w.t.Helper()
	ctx, cancel := context.WithCancelCause(w.t.Context())
	seen = &terminal{t: w.t}
	done := make(chan result, 1)
	go func() {
		done <- w.with(ctx, options{stdout: io.MultiWriter(seen, also)}, append([]string{"events", "-f"}, args...)...)
	}()
	return seen, func() result {
		cancel(errors.New("enough"))
		return <-done
	}
}

// publish publishes until it is printed: listeners connect in the background.
func (w *world) publish(seen *terminal, topic string, v any, want string) {
	w.t.Helper()
	eventually(w.t, want, func() bool {
		if err := w.bus.Publish(w.t.Context(), events.Subject(w.ns, "decode", topic), v); err != nil {
			w.t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
		seen.mu.Lock()
		defer seen.mu.Unlock()
		return strings.Contains(seen.out.String(), want)
	})
}

func TestEventsFollow(t *testing.T) {
	w := newWorld(t)
	drains := newPacer(t, "\tworker\tworker-1\tready -> draining", func(st cluster.WorkerStatus) bool { return st.State == cluster.StateDraining })
	w.agent(fakeConfig{Sequences: 1, Pace: drains.pace})
	w.up(0, 1)
	seen, stop := w.listening(drains)
	at := time.Date(2026, 5, 4, 3, 2, 1, 500e6, time.UTC)
	w.publish(seen, cluster.TopicKVEvents, cluster.KVEvent{Worker: "worker-1", Kind: cluster.KVStored, Count: 4, StartPosition: 8, Stored: []cluster.KVStoredBlock{{BlockHash: 0x9f3a << 48}}, Time: at},
		"2026-05-04T03:02:01.5Z\tkv\tworker-1\tstored +4 9f3a… d12\n")
	w.publish(seen, cluster.TopicRouterDecisions, cluster.RouterDecision{
		RequestID: "r-8f21", Phase: cluster.RoleDecode, Chosen: "worker-1", Overlap: 4, Blocks: 36, Prefill: "local", PrefillWhy: "short", Time: at,
		Candidates: []cluster.RouteCandidate{{Worker: "worker-1", Cost: 18}},
	}, "\trouter\tworker-1\tr-8f21 decode, overlap 4/36 blocks, cost 18.0 of 1 candidate, prefill local (short)\n")
	w.ok("drain", "worker-1", "--yes")
	seen.expect(drains.want)
	seen.expect("-> drained")
	r := stop()
	if r.code != exitInterrupted || r.stderr != "dynctl: stopped listening to events\n" {
		t.Errorf("%d, %q", r.code, r.stderr)
	}
}

func TestEventsOfAWorkerAsJSON(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{})
	w.up(0, 2)
	seen, stop := w.listening(io.Discard, "--kv", "--worker", "worker-2", "-o", "json")
	for range 3 { // not these
		_ = w.bus.Publish(t.Context(), events.Subject(w.ns, "decode", cluster.TopicRouterDecisions), cluster.RouterDecision{Chosen: "worker-2"})
		_ = w.bus.Publish(t.Context(), events.Subject(w.ns, "decode", cluster.TopicKVEvents), cluster.KVEvent{Worker: "worker-1"})
	}
	w.publish(seen, cluster.TopicKVEvents, cluster.KVEvent{Worker: "worker-2", Kind: cluster.KVRemoved, Count: 8, Removed: []uint64{1}}, `"removed"`)
	r := stop()
	for line := range strings.Lines(r.stdout) {
		var e client.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if e.Kind != client.EventKV || e.Worker != "worker-2" || e.KV.Count != 8 {
			t.Errorf("got %+v", e)
		}
	}
}

func TestEventsEnd(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{})
	w.up(0, 1)
	if r := w.ok("events", "--for", "50ms", "--kv"); r.stdout != "" || r.stderr != "dynctl: note: no such event within 50ms; -f goes on listening\n" {
		t.Errorf("nothing happened: %+v", r)
	}
	if r := w.run("events", "--worker", "worker-9"); r.code != exitFailed || !strings.Contains(r.stderr, "cannot listen to worker-9: no such worker in cluster lab") {
		t.Errorf("no worker: %+v", r)
	}
	r := w.with(t.Context(), options{env: []string{"NATS_SERVER=nats://127.0.0.1:1"}}, "events", "--for", "50ms")
	if r.code != exitUnreachable || !strings.Contains(r.stderr, "dynctl: cannot listen to events: nats unreachable: ") {
		t.Errorf("no NATS: %+v", r)
	}
	without := slices.DeleteFunc(slices.Clone(w.env), func(kv string) bool { return strings.HasPrefix(kv, "NATS_SERVER=") })
	r = runMain(t.Context(), options{env: without}, "events")
	if r.code != exitUnreachable || !strings.Contains(r.stderr, "no event plane is configured") {
		t.Errorf("no NATS configured: %+v", r)
	}
}

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
		o    eventsCommand
		want string // one letter for each of the list
	}{
		{"all", eventsCommand{}, "yyyyyy"},
		{"kv", eventsCommand{kv: true}, "ynnyny"},
		{"router and status", eventsCommand{router: true, status: true}, "nyynyy"},
		{"a worker", eventsCommand{workers: []string{"worker-1"}}, "yynyyy"},
		{"status of a worker", eventsCommand{status: true, workers: []string{"worker-1"}}, "nnnnny"},
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
