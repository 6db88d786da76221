package eventstest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/patience"
)

// Queue is a queue as seen by one process.
type Queue struct {
	events.WorkQueue
	// Kill ends the process: nothing that it does afterwards has an effect.
	Kill func()
}

// MakeQueue returns a function that returns users of one new queue. It is called
// from tests that run in parallel.
type MakeQueue func(t *testing.T, cfg events.QueueConfig) (join func() Queue)

// env holds the values that the tests of one queue implementation share.
type env struct {
	make    MakeQueue
	ackWait time.Duration
}

// RunQueue runs the suite for work queues. AckWait should be short, because the
// suite waits for redelivery, but long enough for the implementation to never be
// late with its signs of life.
func RunQueue(t *testing.T, ackWait time.Duration, newQueue MakeQueue) {
	e := env{newQueue, ackWait}
	tests := []struct {
		name string
		f    func(*testing.T, env)
	}{
		{"OneByOne", testOneByOne},
		{"Order", testQueueOrder},
		{"Concurrency", testConcurrency},
		{"NoPrefetch", testNoPrefetch},
		{"Shared", testShared},
		{"Depth", testDepth},
		{"Full", testFull},
		{"Dedup", testDedup},
		{"EmptyID", testEmptyID},
		{"KeptAlive", testKeptAlive},
		{"DeadWorker", testDeadWorker},
		{"Nak", testNak},
		{"ForgottenMessage", testForgottenMessage},
		{"HandlerPanic", testHandlerPanic},
		{"Term", testTerm},
		{"TooManyAttempts", testTooManyAttempts},
		{"DecideOnce", testDecideOnce},
		{"FinishedTooLate", testFinishedTooLate},
		{"Remove", testRemove},
		{"RemoveInWork", testRemoveInWork},
		{"ConsumeEnds", testConsumeEnds},
		{"StopLosesNothing", testStopLosesNothing},
		{"MaxAge", testMaxAge},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.f(t, e)
		})
	}
}

// config is for tests in which no acknowledgement times out: what is delivered
// again there, is so at once or not at all.
func (e env) config() events.QueueConfig { return events.QueueConfig{AckWait: 2 * patience.Soon} }

// impatient is for tests that wait for acknowledgements to time out.
func (e env) impatient() events.QueueConfig { return events.QueueConfig{AckWait: e.ackWait} }

// queue makes a queue and waits until it works: making it the first time may take
// longer than the callers of a running system have.
func (e env) queue(t *testing.T, cfg events.QueueConfig) (join func() Queue) {
	t.Helper()
	join = e.make(t, cfg)
	q := join()
	patience.Until(t, "the queue is there", func() bool {
		_, err := q.Depth(t.Context())
		return err == nil
	})
	return join
}

// enqueue tries again when the server is slow, which the ids make safe.
func enqueue(t *testing.T, q events.WorkQueue, ids ...string) {
	t.Helper()
	for _, id := range ids {
		var err error
		patience.Until(t, "Enqueue", func() bool {
			err = q.Enqueue(t.Context(), id, []byte("body of "+id))
			return !errors.Is(err, events.ErrUnavailable)
		})
		if err != nil {
			t.Fatalf("Enqueue(%s): %v", id, err)
		}
	}
}

// worker is a running Consume that passes its deliveries to the test.
type worker struct {
	got  chan *events.Delivery
	next chan struct{} // one value lets one handler return
	stop func()        // ends Consume and waits for it
}

// start starts a worker whose handlers wait for the test.
func start(t *testing.T, q events.WorkQueue, concurrency int) *worker {
	t.Helper()
	w := &worker{got: make(chan *events.Delivery, 1000), next: make(chan struct{}, 1000)}
	w.stop = consume(t, q, concurrency, func(ctx context.Context, d *events.Delivery) {
		w.got <- d
		select {
		case <-w.next:
		case <-ctx.Done():
		}
	})
	return w
}

func consume(t *testing.T, q events.WorkQueue, concurrency int, h func(context.Context, *events.Delivery)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := q.Consume(ctx, concurrency, h); !errors.Is(err, context.Canceled) && !errors.Is(err, events.ErrClosed) {
			t.Errorf("Consume = %v, want Canceled or ErrClosed", err)
		}
	}()
	stop = func() {
		cancel()
		select {
		case <-done:
		case <-time.After(patience.Soon):
			t.Errorf("Consume does not end")
		}
	}
	t.Cleanup(stop)
	return stop
}

func (w *worker) delivery(t *testing.T) *events.Delivery {
	t.Helper()
	select {
	case d := <-w.got:
		return d
	case <-time.After(patience.Soon):
		t.Fatalf("no delivery within %s", patience.Soon)
		return nil
	}
}

// finish acknowledges and lets the handler return.
func (w *worker) finish(t *testing.T, d *events.Delivery) {
	t.Helper()
	if err := d.Ack(t.Context()); err != nil {
		t.Errorf("Ack(%s): %v", d.ID, err)
	}
	w.next <- struct{}{}
}

// idle checks that nothing is delivered for a while.
func (w *worker) idle(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case d := <-w.got:
		t.Errorf("unexpected delivery of %s, attempt %d", d.ID, d.Attempt)
	case <-time.After(d):
	}
}

func wantDepth(t *testing.T, q events.WorkQueue, want events.Depth) {
	t.Helper()
	var got events.Depth
	var err error
	for deadline := time.Now().Add(patience.Soon); ; time.Sleep(5 * time.Millisecond) {
		waiting := 0
		if got, err = q.Depth(t.Context()); err == nil && got == want {
			if waiting, err = q.Waiting(t.Context()); err == nil && waiting <= want.Pending {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("depth = %+v, %v, want %+v", got, err, want)
		}
	}
}
