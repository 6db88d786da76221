package decode

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/protocol"
)

// queueLookEvery is the interval at which a decode worker checks that the queue with its
// request is still reachable.
const queueLookEvery = 250 * time.Millisecond

// requestPrefill enqueues the request and waits for its end.
func (f *filling) requestPrefill(ctx context.Context, req protocol.RemotePrefillRequest, wt *waiter) (protocol.PrefillNotice, error) {
	w := f.w
	body, err := protocol.Marshal(req)
	if err != nil {
		return protocol.PrefillNotice{}, err
	}
	id := req.RequestID + "/" + req.Ticket[:8]
	q := queued{reconnects: w.Bus.Stats().Reconnects, again: func() error { return w.Queue.Enqueue(ctx, id, body) }}
	switch err := w.Queue.Enqueue(ctx, id, body); {
	case errors.Is(err, events.ErrUnavailable):
		f.way = protocol.WayDirect // without the queue a worker is asked directly
		return f.callPrefill(ctx, req, wt)
	case err != nil:
		return protocol.PrefillNotice{}, fmt.Errorf("enqueue: %w", err)
	}
	pointQueued.Hit()
	n, err := f.awaitPrefill(ctx, req, wt, q)
	if err != nil {
		w.forgetMessage(ctx, id)
	}
	return n, err // its worker acknowledges what is done
}

// queued is a message in the queue.
type queued struct {
	reconnects uint64       // of the bus when it was enqueued
	again      func() error // enqueues it again; the queue ignores it if it has it or had it
}

// awaitPrefill waits for the end of a request that was enqueued. After a reconnect it
// enqueues the request again: the server may have lost its data.
func (f *filling) awaitPrefill(ctx context.Context, req protocol.RemotePrefillRequest, wt *waiter, q queued) (protocol.PrefillNotice, error) {
	look := time.NewTicker(queueLookEvery)
	defer look.Stop()
	for started, unreachable := false, 0; ; {
		select {
		case n := <-wt.notices:
			if n.Phase != protocol.PrefillStarted {
				return n, checkNotice(n, req)
			}
			started = true
		case <-look.C:
			// Nobody fetches from a queue that is out of reach. One look may fall into
			// a reconnect.
			switch {
			case started:
			case f.w.Bus.Connected():
				unreachable = 0
				if now := f.w.Bus.Stats().Reconnects; now != q.reconnects && q.again() == nil {
					q.reconnects = now
				}
			default:
				if unreachable++; unreachable == 2 {
					return protocol.PrefillNotice{}, errQueueLost
				}
			}
		case err := <-wt.lost:
			return protocol.PrefillNotice{}, err
		case <-ctx.Done():
			return protocol.PrefillNotice{}, context.Cause(ctx)
		}
	}
}

// forgetMessage takes a message that is no longer wanted out of the queue. Done
// messages are gone already; the call then does nothing.
func (w *Role) forgetMessage(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = w.Queue.Remove(ctx, id) // best effort: a late prefill finds its ticket revoked
}
