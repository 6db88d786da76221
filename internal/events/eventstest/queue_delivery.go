package eventstest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/patience"
)

// A handler may take longer than the time to acknowledge.
func testKeptAlive(t *testing.T, e env) {
	join := e.queue(t, e.impatient())
	q := join()
	w, other := start(t, q, 1), start(t, join(), 1)
	enqueue(t, q, "slow")
	var d *events.Delivery
	var mine, idle *worker
	select {
	case d = <-w.got:
		mine, idle = w, other
	case d = <-other.got:
		mine, idle = other, w
	case <-time.After(patience.Soon):
		t.Fatal("not delivered")
	}
	idle.idle(t, 3*e.ackWait/2)
	if d.Attempt != 1 {
		t.Errorf("attempt = %d", d.Attempt)
	}
	mine.finish(t, d)
	idle.idle(t, 5*e.ackWait/4) // what is acknowledged does not come again
	wantDepth(t, q, events.Depth{})
}

func testDeadWorker(t *testing.T, e env) {
	join := e.queue(t, e.impatient())
	q, dying := join(), join()
	w := start(t, dying, 1)
	enqueue(t, q, "a", "b")
	d := w.delivery(t)
	dying.Kill()
	heir := start(t, join(), 1)
	got := map[string]int{}
	for range 2 {
		d := heir.delivery(t)
		got[d.ID] = d.Attempt
		heir.finish(t, d)
	}
	if got["a"] != 2 || got["b"] != 1 {
		t.Errorf("attempts = %v, want a:2 b:1", got)
	}
	wantDepth(t, q, events.Depth{})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := d.Ack(ctx); !errors.Is(err, events.ErrUnavailable) {
		t.Errorf("Ack by a dead worker = %v, want ErrUnavailable", err)
	}
}

func testNak(t *testing.T, e env) {
	q := e.queue(t, e.config())()
	w := start(t, q, 1)
	enqueue(t, q, "a")
	if err := w.delivery(t).Nak(0); err != nil {
		t.Fatal(err)
	}
	w.next <- struct{}{}
	d := w.delivery(t)
	if d.Attempt != 2 {
		t.Errorf("attempt = %d, want 2", d.Attempt)
	}
	const delay = 200 * time.Millisecond
	begin := time.Now()
	if err := d.Nak(delay); err != nil {
		t.Fatal(err)
	}
	w.next <- struct{}{}
	d = w.delivery(t)
	if took := time.Since(begin); took < delay*9/10 {
		t.Errorf("redelivered after %s, want %s", took, delay)
	}
	if d.Attempt != 3 {
		t.Errorf("attempt = %d, want 3", d.Attempt)
	}
	w.finish(t, d)
}

func testForgottenMessage(t *testing.T, e env) {
	q := e.queue(t, e.config())()
	w := start(t, q, 1)
	enqueue(t, q, "a")
	w.delivery(t)
	w.next <- struct{}{} // returns without a decision
	d := w.delivery(t)
	if d.Attempt != 2 {
		t.Errorf("attempt = %d, want 2", d.Attempt)
	}
	w.finish(t, d)
}

func testHandlerPanic(t *testing.T, e env) {
	q := e.queue(t, e.config())()
	attempts := make(chan int, 10)
	consume(t, q, 1, func(ctx context.Context, d *events.Delivery) {
		attempts <- d.Attempt
		if d.Attempt == 1 {
			panic("boom")
		}
		d.Ack(ctx)
	})
	enqueue(t, q, "a")
	for want := 1; want <= 2; want++ {
		select {
		case got := <-attempts:
			if got != want {
				t.Errorf("attempt = %d, want %d", got, want)
			}
		case <-time.After(patience.Soon):
			t.Fatal("not redelivered")
		}
	}
	wantDepth(t, q, events.Depth{})
}

func testTerm(t *testing.T, e env) {
	q := e.queue(t, e.config())()
	w := start(t, q, 1)
	enqueue(t, q, "a")
	if err := w.delivery(t).Term("model digest differs"); err != nil {
		t.Fatal(err)
	}
	w.next <- struct{}{}
	w.idle(t, 50*time.Millisecond)
	wantDepth(t, q, events.Depth{DeadLettered: 1})
}

func testTooManyAttempts(t *testing.T, e env) {
	for _, how := range []string{"nak", "silence"} {
		t.Run(how, func(t *testing.T) {
			cfg := e.impatient()
			cfg.MaxDeliver = 2
			join := e.queue(t, cfg)
			q := join()
			enqueue(t, q, "poison")
			var attempts atomic.Int64
			if how == "nak" {
				consume(t, q, 1, func(_ context.Context, d *events.Delivery) {
					if n := attempts.Add(1); d.Last != (n == 2) {
						t.Errorf("attempt %d of 2 is the last one: %t", n, d.Last)
					}
					d.Nak(0)
				})
			} else { // each attempt ends with the death of its worker
				for range cfg.MaxDeliver {
					dying := join()
					w := start(t, dying, 1)
					w.delivery(t)
					attempts.Add(1)
					dying.Kill()
				}
				start(t, join(), 1)
			}
			wantDepth(t, q, events.Depth{DeadLettered: 1})
			if n := attempts.Load(); n != 2 {
				t.Errorf("%d attempts, want 2", n)
			}
		})
	}
}

func testDecideOnce(t *testing.T, e env) {
	q := e.queue(t, e.config())()
	w := start(t, q, 1)
	enqueue(t, q, "a")
	d := w.delivery(t)
	if err := d.Ack(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Ack(t.Context()), d.Nak(0), d.Term("x"), d.InProgress()); err != nil {
		t.Errorf("after Ack: %v", err)
	}
	w.next <- struct{}{}
	w.idle(t, 50*time.Millisecond)
	wantDepth(t, q, events.Depth{})
}

// What was finished is not done again, even if its worker had no time to wait for the
// acknowledgement.
func testFinishedTooLate(t *testing.T, e env) {
	join := e.queue(t, e.config())
	q := join()
	var runs atomic.Int64
	for range 2 {
		consume(t, join(), 1, func(ctx context.Context, d *events.Delivery) {
			runs.Add(1)
			ended, cancel := context.WithCancel(ctx)
			cancel()
			if err := d.Ack(ended); err != nil && !errors.Is(err, events.ErrUnavailable) {
				t.Errorf("Ack = %v, want ErrUnavailable", err)
			}
			if err := d.Term("too late"); err != nil { // the first decision counts
				t.Errorf("Term = %v", err)
			}
		})
	}
	const n = 5
	for i := range n {
		enqueue(t, q, fmt.Sprint(i))
	}
	patience.Until(t, "all are handled", func() bool { return runs.Load() >= n })
	wantDepth(t, q, events.Depth{})
	start(t, q, 1).idle(t, 50*time.Millisecond)
	if runs.Load() != n {
		t.Errorf("handled %d messages, want %d", runs.Load(), n)
	}
}

func testRemove(t *testing.T, e env) {
	q := e.queue(t, e.config())()
	enqueue(t, q, "a", "b", "c")
	for _, id := range []string{"b", "b", "never seen"} {
		if err := q.Remove(t.Context(), id); err != nil {
			t.Errorf("Remove(%s): %v", id, err)
		}
	}
	wantDepth(t, q, events.Depth{Pending: 2})
	w := start(t, q, 1)
	for _, want := range []string{"a", "c"} {
		d := w.delivery(t)
		if d.ID != want {
			t.Errorf("delivery = %s, want %s", d.ID, want)
		}
		w.finish(t, d)
	}
	wantDepth(t, q, events.Depth{})
	if err := q.Remove(t.Context(), "a"); err != nil { // done long ago
		t.Error(err)
	}
}

func testRemoveInWork(t *testing.T, e env) {
	q := e.queue(t, e.config())()
	w := start(t, q, 1)
	enqueue(t, q, "a")
	w.delivery(t)
	if err := q.Remove(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	w.next <- struct{}{} // gives it back, but it is gone
	w.idle(t, 50*time.Millisecond)
	enqueue(t, q, "b")
	d := w.delivery(t)
	if d.ID != "b" {
		t.Errorf("delivery = %s, want b", d.ID)
	}
	w.finish(t, d)
	wantDepth(t, q, events.Depth{})
}

func testConsumeEnds(t *testing.T, e env) {
	join := e.queue(t, e.config())
	q := join()
	w := start(t, q, 2)
	enqueue(t, q, "a")
	w.delivery(t)
	w.stop() // the handler returns because of its context, without a decision
	heir := start(t, join(), 1)
	d := heir.delivery(t)
	if d.Attempt != 2 {
		t.Errorf("attempt = %d, want 2", d.Attempt)
	}
	heir.finish(t, d)
}

// Workers come and go while messages arrive; each message is handled once, in its
// first attempt unless it was in the hands of one that went.
func testStopLosesNothing(t *testing.T, e env) {
	join := e.queue(t, e.config())
	q := join()
	var handled atomic.Int64
	h := func(_ context.Context, d *events.Delivery) {
		if err := d.Ack(context.Background()); err != nil {
			t.Errorf("Ack: %v", err)
		}
		handled.Add(1)
	}
	const rounds, each = 8, 10
	for r := range rounds {
		stop := consume(t, join(), 2, h)
		for i := range each {
			enqueue(t, q, fmt.Sprint(r, "-", i))
		}
		stop()
	}
	consume(t, join(), 2, h)
	patience.Until(t, "all are handled", func() bool { return handled.Load() >= rounds*each })
	wantDepth(t, q, events.Depth{})
	if n := handled.Load(); n != rounds*each {
		t.Errorf("handled %d messages, want %d", n, rounds*each)
	}
}

func testMaxAge(t *testing.T, e env) {
	cfg := e.config()
	cfg.MaxAge = 300 * time.Millisecond
	q := e.queue(t, cfg)()
	enqueue(t, q, "old")
	wantDepth(t, q, events.Depth{})
	enqueue(t, q, "new")
	w := start(t, q, 1)
	d := w.delivery(t)
	if d.ID != "new" {
		t.Errorf("delivery = %s, want new", d.ID)
	}
	w.finish(t, d)
}
