package client

import (
	"errors"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/events"
)

// next returns the next event of a stream.
func next(t *testing.T, s *Stream) Event {
	t.Helper()
	select {
	case e := <-s.Events():
		return e
	case <-time.After(time.Minute):
		t.Fatal("no event")
		return Event{}
	}
}

func TestEvents(t *testing.T) {
	srv := startServers(t)
	c := srv.connect()
	begin := time.Now()
	status := func(name string, state cluster.State, after time.Duration) cluster.WorkerStatus {
		return cluster.WorkerStatus{Name: name, Role: cluster.RoleDecode, State: state, UpdatedAt: begin.Add(after), Generation: 1}
	}
	put(t, c, cluster.StatusKey(c.Namespace, "worker-1"), status("worker-1", cluster.StateReady, 0), 0)
	s, err := c.Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	bus, err := c.Bus()
	if err != nil {
		t.Fatal(err)
	}
	defer bus.Close()
	publish := func(topic string, v any) {
		if err := bus.Publish(t.Context(), events.Subject(c.Namespace, "decode", topic), v); err != nil {
			t.Fatal(err)
		}
	}
	// Both connect in the background, and each topic is a subscription of its own; what was
	// published before is not delivered.
	end := time.Now().Add(time.Minute)
	for heard := map[EventKind]bool{}; len(heard) < 3; {
		if time.Now().After(end) {
			t.Fatalf("no events but %v", heard)
		}
		publish(cluster.TopicKVEvents, cluster.KVEvent{Worker: "worker-0"})
		publish(cluster.TopicRouterDecisions, cluster.RouterDecision{Chosen: "worker-0"})
		publish(cluster.TopicWorkerStatus, status("worker-0", cluster.StateReady, 0))
		select {
		case e := <-s.Events():
			heard[e.Kind] = true
		case <-time.After(20 * time.Millisecond):
		}
	}
	next := func(t *testing.T, s *Stream) Event {
		t.Helper()
		for {
			if e := next(t, s); e.Worker != "worker-0" {
				return e
			}
		}
	}
	if ok, why := s.Connected(); !ok {
		t.Errorf("not connected: %s", why)
	}
	publish(cluster.TopicKVEvents, cluster.KVEvent{Worker: "worker-1", Kind: cluster.KVStored, Count: 4})
	if e := next(t, s); e.Kind != EventKV || e.KV == nil || e.KV.Count != 4 {
		t.Errorf("got %+v", e)
	}
	publish(cluster.TopicEncodings, cluster.Encodings{Worker: "worker-1", Images: []cluster.Encoding{{Content: "a"}, {Content: "b"}}, Omitted: 5})
	for _, content := range []string{"a", "b"} {
		if e := next(t, s); e.Kind != EventEncode || e.Worker != "worker-1" || e.Encoding == nil || e.Encoding.Content != content {
			t.Errorf("got %+v", e)
		}
	}
	if e := next(t, s); e.Kind != EventGap || e.Of != EventEncode || e.Missed != 5 || e.Worker != "worker-1" {
		t.Errorf("got %+v", e)
	}
	publish(cluster.TopicRouterDecisions, cluster.RouterDecision{RequestID: "r-1", Chosen: "worker-1"})
	if e := next(t, s); e.Kind != EventRouter || e.Worker != "worker-1" || e.Decision.RequestID != "r-1" {
		t.Errorf("got %+v", e)
	}
	// A status that says nothing new is none, nor one that is older.
	publish(cluster.TopicWorkerStatus, status("worker-1", cluster.StateReady, time.Second))
	publish(cluster.TopicWorkerStatus, status("worker-1", cluster.StateLoading, time.Millisecond))
	publish(cluster.TopicWorkerStatus, status("worker-1", cluster.StateDraining, 2*time.Second))
	if e := next(t, s); e.Kind != EventWorker || e.Change.From != cluster.StateReady || e.Change.State != cluster.StateDraining {
		t.Errorf("got %+v, %+v", e, e.Change)
	}
	// The store tells of those that do not speak.
	put(t, c, cluster.StatusKey(c.Namespace, "worker-2"), status("worker-2", cluster.StateFailed, 0), 0)
	if e := next(t, s); e.Worker != "worker-2" || e.Change.From != "" || e.Change.State != cluster.StateFailed {
		t.Errorf("got %+v, %+v", e, e.Change)
	}
	if err := c.store.Delete(t.Context(), cluster.StatusKey(c.Namespace, "worker-1")); err != nil {
		t.Fatal(err)
	}
	if e := next(t, s); e.Worker != "worker-1" || e.Change.From != cluster.StateDraining || e.Change.State != StateGone {
		t.Errorf("got %+v, %+v", e, e.Change)
	}
}

func TestEventsThatNobodyReads(t *testing.T) {
	s := &Stream{out: make(chan Event, 2), workers: map[string]cluster.WorkerStatus{}}
	for range 5 {
		s.push(Event{Kind: EventKV})
	}
	<-s.out
	s.push(Event{Kind: EventRouter}) // finds no room behind the gap
	<-s.out
	if e := <-s.out; e.Kind != EventGap || e.Missed != 3 {
		t.Errorf("got %+v", e)
	}
	s.push(Event{Kind: EventWorker})
	if e := <-s.out; e.Kind != EventGap || e.Missed != 1 {
		t.Errorf("got %+v", e)
	}
	if e := <-s.out; e.Kind != EventWorker {
		t.Errorf("got %+v", e)
	}
	// What the plane has lost is told before what came after it.
	s.gap(events.Event{Missed: 7}, EventKV, "worker-1")
	if e := <-s.out; e.Kind != EventGap || e.Missed != 7 || e.Of != EventKV || e.Worker != "worker-1" {
		t.Errorf("got %+v", e)
	}
}

func TestEventsWithoutAPlane(t *testing.T) {
	srv := startServers(t)
	c := srv.connect(func(cfg *config.Dynctl) { cfg.NATS.URL = "" })
	if _, err := c.Events(t.Context()); !errors.Is(err, ErrNoBus) {
		t.Errorf("got %v", err)
	}
}
