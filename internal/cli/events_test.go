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

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/exit"
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
	clitest.Eventually(w.t, want, func() bool {
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
	if r.code != exit.Interrupted || r.stderr != "dynctl: stopped listening to events\n" {
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
	if r := w.run("events", "--worker", "worker-9"); r.code != exit.Failed || !strings.Contains(r.stderr, "cannot listen to worker-9: no such worker in cluster lab") {
		t.Errorf("no worker: %+v", r)
	}
	r := w.with(t.Context(), options{env: []string{"NATS_SERVER=nats://127.0.0.1:1"}}, "events", "--for", "50ms")
	if r.code != exit.Unreachable || !strings.Contains(r.stderr, "dynctl: cannot listen to events: nats unreachable: ") {
		t.Errorf("no NATS: %+v", r)
	}
	without := slices.DeleteFunc(slices.Clone(w.env), func(kv string) bool { return strings.HasPrefix(kv, "NATS_SERVER=") })
	r = runMain(t.Context(), options{env: without}, "events")
	if r.code != exit.Unreachable || !strings.Contains(r.stderr, "no event plane is configured") {
		t.Errorf("no NATS configured: %+v", r)
	}
}
