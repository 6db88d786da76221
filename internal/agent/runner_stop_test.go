package agent

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/store"
)

// The end of the node does not wait for a worker that serves nobody yet.
func TestNodeStopsWhileLoading(t *testing.T) {
	t.Parallel()
	n := startTestNode(t)
	gate, open := wait()
	defer open()
	n.loads.set(func(l *loads) { l.gate = gate })
	n.assign()
	n.reaches(cluster.StateLoading)
	begin := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := n.workers.drain(ctx); err != nil {
		t.Error(err)
	}
	n.stop()
	if took := time.Since(begin); took > patience.Soon/4 {
		t.Errorf("stopping took %s", took)
	}
}

// Requests in flight are finished when the node stops, and nothing starts any more.
func TestNodeStopsWhileServing(t *testing.T) {
	t.Parallel()
	n := startTestNode(t)
	n.loads.set(func(l *loads) { l.opts.StepTime = func(int, int) time.Duration { return 5 * time.Millisecond } })
	n.assign()
	n.reaches(cluster.StateReady)
	type result struct {
		tokens []uint32
		err    error
	}
	answer := make(chan result, 1)
	go func() {
		tokens, err := n.generate(context.Background(), 100)
		answer <- result{tokens, err}
	}()
	patience.Until(t, "the request runs", func() bool { return n.workers.statuses()[0].Stats.Running == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	if err := n.workers.drain(ctx); err != nil {
		t.Error(err)
	}
	if r := <-answer; r.err != nil || len(r.tokens) != 100 {
		t.Errorf("%d tokens: %v", len(r.tokens), r.err)
	}
	n.reaches(cluster.StateDrained)
	loads := n.loads.count()
	n.assignAs("worker-2")
	n.assign(restart)
	n.stop()
	if n.loads.count() != loads {
		t.Error("a stopping node started a worker")
	}
}

// At the end of its patience the node cuts off what still runs.
func TestNodeStopsInAHurry(t *testing.T) {
	t.Parallel()
	n := startTestNode(t)
	n.loads.set(func(l *loads) { l.opts.StepTime = func(int, int) time.Duration { return 20 * time.Millisecond } })
	n.assign()
	n.reaches(cluster.StateReady)
	answer := make(chan error, 1)
	go func() {
		_, err := n.generate(context.Background(), 900)
		answer <- err
	}()
	patience.Until(t, "the request runs", func() bool { return n.workers.statuses()[0].Stats.Running == 1 })
	ctx, cancel := context.WithCancelCause(t.Context())
	hurry := errors.New("second signal")
	time.AfterFunc(50*time.Millisecond, func() { cancel(hurry) })
	if err := n.workers.drain(ctx); !errors.Is(err, hurry) || !strings.Contains(err.Error(), "worker-1") {
		t.Errorf("drain: %v", err)
	}
	begin := time.Now()
	n.stop()
	if took := time.Since(begin); took > patience.Soon/2 {
		t.Errorf("stopping took %s", took)
	}
	if err := <-answer; err == nil {
		t.Error("the request was finished")
	}
}

// A worker that was moved away does not take the status of its successor with it.
func TestMovedAway(t *testing.T) {
	t.Parallel()
	n := startTestNode(t)
	n.assign()
	n.reaches(cluster.StateReady)
	// The controller believed that the node was dead; the worker runs elsewhere.
	elsewhere := cluster.WorkerStatus{Name: "worker-1", Node: "id-2", State: cluster.StateReady, Generation: 2}
	if _, err := store.PutJSON(t.Context(), n.mem, cluster.StatusKey(n.cfg.Namespace, "worker-1"), elsewhere); err != nil {
		t.Fatal(err)
	}
	n.workers.mu.Lock()
	r := n.workers.runners["worker-1"]
	n.workers.mu.Unlock()
	n.assign(func(a *cluster.Assignment) { a.Node, a.Generation = "id-2", 2 })
	select {
	case <-r.done:
	case <-time.After(long):
		t.Fatal("it does not end here")
	}
	if st, _ := n.stored(); st.Node != "id-2" {
		t.Errorf("the status is %+v", st)
	}
	if len(n.workers.statuses()) != 0 {
		t.Errorf("statuses %+v", n.workers.statuses())
	}
}
