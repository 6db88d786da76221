package prefill

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/worker/kv"
)

const (
	// concurrency is the number of queue messages that one worker holds: one computes while
	// the previous one's last blocks are still on their way.
	concurrency = 2
	// ackTimeout bounds the acknowledgement of a message.
	ackTimeout = 5 * time.Second
)

// consumer fetches messages from the prefill queue. A drain stops it, and starts it again
// when it is taken back.
type consumer struct {
	mu     sync.Mutex
	cancel context.CancelFunc
	done   chan struct{} // closed when the last message has ended; nil before the first start
}

// Start implements role.Role: it fetches messages from the queue until Stop.
func (w *Role) Start(ctx context.Context) {
	c := &w.consumer
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel != nil {
		return
	}
	fetching, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	c.cancel, c.done = cancel, done
	go func() {
		defer close(done)
		err := w.Queue.Consume(fetching, concurrency, func(_ context.Context, d *events.Delivery) { w.serveMessage(ctx, d) })
		if fetching.Err() == nil {
			w.Log.Error("prefill queue consumer ended", "error", err)
		}
	}()
}

// Stop implements role.Role: messages in work go on.
func (w *Role) Stop() {
	c := &w.consumer
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel != nil {
		c.cancel()
		c.cancel = nil
	}
}

// stopped is closed when messages in work have ended after Stop.
func (c *consumer) stopped() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		none := make(chan struct{})
		close(none)
		return none
	}
	return c.done
}

// returnDelay is how long a message waits before it is delivered again, if its first worker
// cannot take it: it must not come back at once to a worker that is idle for just that
// reason. It doubles with each further attempt.
const returnDelay = 10 * time.Millisecond

// goneDelay is how long a message waits in the queue before it is delivered again, if the
// store does not know its decode worker. When the store has lost its data, a worker registers
// again within that time.
const goneDelay = 2 * time.Second

// errForeign means that a message of the queue is for workers with another model or other
// blocks, such as there are side by side while a change is rolled out.
var errForeign = errors.New("not for this worker")

// serveMessage works on one message of the queue. The message is acknowledged only when
// the KV is in place and the decode worker knows it. work ends when work in hand must
// stop; it does not end when the fetching does.
func (w *Role) serveMessage(work context.Context, d *events.Delivery) {
	ctx, cancel := context.WithCancelCause(work)
	defer cancel(nil)
	pointFetched.Hit()
	var req protocol.RemotePrefillRequest
	settle := func(what string, err error) {
		if err != nil {
			w.Log.Warn("acknowledge queue message", "message", d.ID, "action", what, "error", err)
		}
	}
	if err := protocol.Unmarshal(d.Body, &req); err != nil {
		settle("dead-letter", d.Term("unreadable: "+err.Error()))
		return
	}
	req.Attempt = d.Attempt
	// Work that is done is acknowledged even while the worker stops.
	ack := func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ackTimeout)
		defer cancel()
		return d.Ack(ctx)
	}
	w.Meter.PrefillQueueWait.Observe(time.Since(req.EnqueuedAt).Seconds())
	if d.Attempt > 1 {
		w.Meter.PrefillRedelivered.Inc()
	}
	notice, err := w.compute(ctx, req)
	// failed has the decode worker do the work at once, also while this worker stops.
	failed := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ackTimeout)
		defer cancel()
		w.tell(ctx, req, notice.failed(err))
	}
	giveUp := func() {
		w.Log.Warn("remote prefill not done by any worker", "request", req.RequestID, "attempts", d.Attempt, "error", err)
		failed()
		settle("ack", ack())
	}
	switch {
	case err == nil:
		settle("ack", ack())
		pointAcknowledged.Hit()
	case errors.Is(err, kv.ErrGone) && !d.Last:
		settle("return", d.Nak(goneDelay))
	case errors.Is(err, kv.ErrUnwanted), errors.Is(err, kv.ErrGone):
		w.Log.Debug("remote prefill no longer wanted", "request", req.RequestID, "reason", err)
		settle("ack", ack())
	case errors.Is(err, errForeign), errors.Is(err, engine.ErrQueueFull), errors.Is(err, engine.ErrDraining) && work.Err() == nil:
		// Another worker takes the message. When none has, its decode worker does the
		// work itself, as after any failure.
		if !d.Last {
			settle("return", d.Nak(returnDelay<<(d.Attempt-1)))
			return
		}
		giveUp()
	case errors.Is(err, kv.ErrMismatch):
		w.Log.Warn("remote prefill that nobody can do", "request", req.RequestID, "attempt", d.Attempt, "error", err)
		failed()
		w.Meter.PrefillDead.Inc()
		settle("dead-letter", d.Term(err.Error()))
	case work.Err() != nil, errors.Is(err, engine.ErrClosed):
		// It stops; another worker takes the message, if it is given to one again.
		if !d.Last {
			settle("return", d.Nak(0))
			return
		}
		giveUp()
	default:
		w.Log.Warn("remote prefill failed", "request", req.RequestID, "attempt", d.Attempt, "error", err)
		failed()
		settle("ack", ack()) // the decode worker falls back; a retry would come too late
	}
}
