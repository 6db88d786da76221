package eventstest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/patience"
)

func testOneByOne(t *testing.T, e env) {
	q := e.queue(t, e.config())()
	w := start(t, q, 1)
	for i := range 20 {
		id := fmt.Sprint("m", i)
		enqueue(t, q, id)
		d := w.delivery(t)
		if d.ID != id || string(d.Body) != "body of "+id || d.Attempt != 1 {
			t.Fatalf("delivery = %s, %q, attempt %d", d.ID, d.Body, d.Attempt)
		}
		w.finish(t, d)
	}
	wantDepth(t, q, events.Depth{})
}

func testQueueOrder(t *testing.T, e env) {
	q := e.queue(t, e.config())()
	const n = 200
	for i := range n {
		enqueue(t, q, fmt.Sprint(i))
	}
	w := start(t, q, 1)
	for i := range n {
		d := w.delivery(t)
		if d.ID != fmt.Sprint(i) {
			t.Fatalf("delivery %d = %s", i, d.ID)
		}
		w.finish(t, d)
	}
}

func testConcurrency(t *testing.T, e env) {
	q := e.queue(t, e.config())()
	const concurrency = 3
	w := start(t, q, concurrency)
	for i := range 10 {
		enqueue(t, q, fmt.Sprint(i))
	}
	var held []*events.Delivery
	for range concurrency {
		held = append(held, w.delivery(t))
	}
	w.idle(t, 50*time.Millisecond)
	wantDepth(t, q, events.Depth{Pending: 7, InWork: 3})
	for _, d := range held {
		w.finish(t, d)
	}
	for range 10 - concurrency {
		w.finish(t, w.delivery(t))
	}
	wantDepth(t, q, events.Depth{})
}

// A busy worker leaves messages to idle ones.
func testNoPrefetch(t *testing.T, e env) {
	join := e.queue(t, e.config())
	busy := start(t, join(), 1)
	q := join()
	enqueue(t, q, "a")
	a := busy.delivery(t)
	enqueue(t, q, "b", "c")
	free := start(t, join(), 1)
	for range 2 {
		free.finish(t, free.delivery(t))
	}
	busy.finish(t, a)
	busy.idle(t, 50*time.Millisecond)
}

func testShared(t *testing.T, e env) {
	join := e.queue(t, e.config())
	const n, workers = 300, 4
	var mu sync.Mutex
	seen := make(map[string]int)
	all := make(chan struct{})
	for range workers {
		consume(t, join(), 2, func(ctx context.Context, d *events.Delivery) {
			if err := d.Ack(ctx); err != nil {
				t.Errorf("Ack: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			if seen[d.ID]++; len(seen) == n && all != nil {
				close(all)
				all = nil
			}
		})
	}
	q, wait := join(), all
	for i := range n {
		enqueue(t, q, fmt.Sprint(i))
	}
	select {
	case <-wait:
	case <-time.After(patience.Soon):
		t.Fatal("not all handled")
	}
	wantDepth(t, q, events.Depth{})
	mu.Lock()
	defer mu.Unlock()
	for id, times := range seen {
		if times != 1 {
			t.Errorf("%s handled %d times", id, times)
		}
	}
}

func testDepth(t *testing.T, e env) {
	join := e.queue(t, e.config())
	q := join()
	wantDepth(t, q, events.Depth{})
	enqueue(t, q, "a", "b", "c")
	wantDepth(t, q, events.Depth{Pending: 3})
	w := start(t, join(), 1)
	d := w.delivery(t)
	wantDepth(t, q, events.Depth{Pending: 2, InWork: 1})
	if err := d.Term("no use"); err != nil {
		t.Fatal(err)
	}
	w.next <- struct{}{}
	w.finish(t, w.delivery(t))
	w.finish(t, w.delivery(t))
	wantDepth(t, q, events.Depth{DeadLettered: 1})
}

func testFull(t *testing.T, e env) {
	cfg := e.config()
	cfg.MaxMessages = 3
	q := e.queue(t, cfg)()
	enqueue(t, q, "a", "b", "c")
	if err := q.Enqueue(t.Context(), "d", nil); !errors.Is(err, events.ErrFull) {
		t.Fatalf("Enqueue = %v, want ErrFull", err)
	}
	w := start(t, q, 1)
	d := w.delivery(t) // in work counts too
	if err := q.Enqueue(t.Context(), "d", nil); !errors.Is(err, events.ErrFull) {
		t.Fatalf("Enqueue = %v, want ErrFull", err)
	}
	w.finish(t, d)
	enqueue(t, q, "d") // a refused id is not taken for a duplicate
	for range 3 {
		w.finish(t, w.delivery(t))
	}
}

func testDedup(t *testing.T, e env) {
	join := e.queue(t, e.config())
	a, b := join(), join()
	enqueue(t, a, "x", "x")
	enqueue(t, b, "x")
	wantDepth(t, a, events.Depth{Pending: 1})
	w := start(t, b, 1)
	w.finish(t, w.delivery(t))
	wantDepth(t, a, events.Depth{})
	enqueue(t, a, "x") // also after it was done
	w.idle(t, 50*time.Millisecond)
}

func testEmptyID(t *testing.T, e env) {
	q := e.queue(t, e.config())()
	if err := q.Enqueue(t.Context(), "", nil); err == nil {
		t.Error("a message without id was accepted")
	}
}
