package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/worker/kv"
)

// puller is the consumer of the prefill queue, which a drain stops and a resume
// starts again.
type puller struct {
	mu     sync.Mutex
	cancel context.CancelFunc
	done   chan struct{}
}

// start pulls messages until stop.
func (p *puller) start(w *Worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cancel != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel, p.done = cancel, make(chan struct{})
	go func(done chan struct{}) {
		defer close(done)
		err := w.cfg.Queue.Consume(ctx, prefillConcurrency, w.servePrefillMessage)
		if ctx.Err() == nil {
			w.log.Error("prefill queue consumer ended", "error", err)
		}
	}(p.done)
}

// stop ends the pulling; messages in work go on. wait is closed when they ended.
func (p *puller) stop() (wait <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cancel == nil {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	p.cancel()
	p.cancel = nil
	return p.done
}

// returnDelay is how long a message rests that its first worker cannot take, so that it
// does not come back at once to a worker that is idle for just that reason. It doubles
// with each further attempt.
const returnDelay = 10 * time.Millisecond

// errForeign means that a message of the queue is for workers with another model or other
// blocks, such as there are side by side while a change is rolled out.
var errForeign = errors.New("not for this worker")

// servePrefillMessage works on one message of the queue. The message is
// acknowledged only when the KV is in place and the decode worker knows it. The
// context that comes with the message ends when pulling stops; work in hand goes
// on, bounded by the request's deadline.
func (w *Worker) servePrefillMessage(_ context.Context, d *events.Delivery) {
	ctx, cancel := context.WithCancelCause(w.workCtx)
	defer cancel(nil)
	pointFetched.Hit()
	var req protocol.RemotePrefillRequest
	settle := func(what string, err error) {
		if err != nil {
			w.log.Warn("settle queue message", "message", d.ID, "action", what, "error", err)
		}
	}
	if err := protocol.Unmarshal(d.Body, &req); err != nil {
		settle("dead-letter", d.Term("unreadable: "+err.Error()))
		return
	}
	req.Attempt = d.Attempt
	// Work that is done is acknowledged even while the worker stops.
	ack := func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		return d.Ack(ctx)
	}
	w.meter().PrefillQueueWait.Observe(time.Since(req.EnqueuedAt).Seconds())
	if d.Attempt > 1 {
		w.meter().PrefillRedelivered.Inc()
	}
	notice, err := w.computePrefill(ctx, req)
	switch {
	case err == nil:
		settle("ack", ack())
		pointAcknowledged.Hit()
	case errors.Is(err, kv.ErrUnwanted):
		w.log.Debug("remote prefill no longer wanted", "request", req.RequestID, "reason", err)
		settle("ack", ack())
	case errors.Is(err, errForeign), errors.Is(err, engine.ErrQueueFull), errors.Is(err, engine.ErrDraining) && w.workCtx.Err() == nil:
		// Another worker takes the message. When none has, its decode worker does the
		// work itself, as after any failure.
		if !d.Last {
			settle("return", d.Nak(returnDelay<<(d.Attempt-1)))
			return
		}
		w.log.Warn("remote prefill not done by any worker", "request", req.RequestID, "attempts", d.Attempt, "error", err)
		w.tell(ctx, req, notice.failed(err))
		settle("ack", ack())
	case errors.Is(err, kv.ErrMismatch):
		w.tell(ctx, req, notice.failed(err))
		w.meter().PrefillDead.Inc()
		settle("dead-letter", d.Term(err.Error()))
	case w.workCtx.Err() != nil, errors.Is(err, engine.ErrClosed):
		// It stops; another worker takes the message.
		settle("return", d.Nak(0))
	default:
		w.log.Warn("remote prefill failed", "request", req.RequestID, "attempt", d.Attempt, "error", err)
		w.tell(ctx, req, notice.failed(err))
		settle("ack", ack()) // the decode worker falls back; a retry would come too late
	}
}

// servePrefillCall works on one request that came over the request plane.
func (w *Worker) servePrefillCall(ctx context.Context, r *requestplane.Request, send func(any) error) error {
	var req protocol.RemotePrefillRequest
	if err := r.Decode(&req); err != nil {
		return err
	}
	notice, err := w.computePrefill(ctx, req)
	if err != nil {
		notice = notice.failed(err)
	}
	return send(notice.PrefillNotice)
}

// outcome is a notice in the making.
type outcome struct{ protocol.PrefillNotice }

func (o outcome) failed(err error) outcome {
	o.Phase, o.Error = protocol.PrefillFailed, err.Error()
	return o
}

// check refuses requests whose blocks mean something else here than there.
func (w *Worker) check(req protocol.RemotePrefillRequest) error {
	there := protocol.KVIdentity{
		ModelSum: req.ModelSum, BlockSize: req.BlockSize, BlockBytes: req.BlockBytes, KVLayout: req.KVLayout, HashSeed: req.HashSeed,
	}
	if err := w.kv.Matches(there, req.Worker); err != nil {
		return fmt.Errorf("%w: %w", errForeign, err)
	}
	want := w.kv.BlocksOf(len(req.TokenIDs))
	if len(req.TokenIDs) == 0 || len(req.BlockIDs) != want || req.ComputedBlocks < 0 || req.ComputedBlocks >= want {
		return fmt.Errorf("%w: %d tokens, %d blocks, %d of them computed", kv.ErrMismatch, len(req.TokenIDs), len(req.BlockIDs), req.ComputedBlocks)
	}
	return nil
}

// computePrefill computes the KV of a prompt and writes it, block by block as it
// becomes ready, into the decode worker's memory; then it tells the decode worker.
func (w *Worker) computePrefill(ctx context.Context, req protocol.RemotePrefillRequest) (outcome, error) {
	out := outcome{protocol.PrefillNotice{
		RequestID: req.RequestID, Attempt: req.Attempt, Ticket: req.Ticket, Worker: w.Name(),
	}}
	if err := w.check(req); err != nil {
		return out, err
	}
	if time.Now().After(req.Deadline) {
		return out, fmt.Errorf("%w: its deadline passed %s ago", kv.ErrUnwanted, time.Since(req.Deadline).Round(time.Millisecond))
	}
	ctx, cancel := context.WithDeadlineCause(ctx, req.Deadline, kv.ErrUnwanted)
	defer cancel()
	ticket, err := nixl.ParseTicketID(req.Ticket)
	if err != nil {
		return out, fmt.Errorf("%w: %w", kv.ErrMismatch, err)
	}
	if err := w.peers.Ensure(ctx, req.EngineID); err != nil {
		return out, err
	}
	pointMetadataLoaded.Hit()
	started := out.PrefillNotice
	started.Phase = protocol.PrefillStarted
	if err := w.kv.Notify(ctx, req.EngineID, started); err != nil {
		return out, fmt.Errorf("tell %s: %w", req.Worker, err)
	}
	pointStartTold.Hit()

	// The writer follows the computation. It must have stopped before the blocks
	// are given back, or it would send what somebody else writes into them.
	wr := w.kv.NewWriter()
	wctx, stopWriter := context.WithCancelCause(ctx)
	defer stopWriter(nil)
	pctx, stopPrefill := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stopPrefill(nil)
	var wrote kv.Written
	written := make(chan error, 1)
	go func() {
		var err error
		if wrote, err = wr.Run(wctx, req, ticket); err != nil {
			stopPrefill(err)
		}
		written <- err
	}()
	begin := time.Now()
	held, err := w.engine.Load().Prefill(pctx, engine.PrefillRequest{
		// The same prompt may come twice after a redelivery.
		ID: fmt.Sprintf("%s#%d.%s", req.RequestID, req.Attempt, req.Ticket[:8]), Tenant: req.Tenant, Tokens: req.TokenIDs, Progress: wr.Progress,
	})
	out.ComputeNS = int64(time.Since(begin))
	if err != nil {
		stopWriter(err)
		if werr := <-written; werr != nil {
			err = werr
		}
		return out, w.cause(ctx, err)
	}
	defer held.Release()
	wr.Progress(held.Tokens, held.Blocks)
	if err := <-written; err != nil {
		return out, w.cause(ctx, err)
	}
	out.Phase, out.Tokens, out.Cached = protocol.PrefillDone, held.Tokens, held.Cached
	out.Bytes, out.WriteNS, out.ExposedNS = wrote.Bytes, int64(wrote.Took), int64(wrote.Exposed)
	w.kv.Moved(wrote.Bytes, wrote.Took)
	w.meter().Transferred(metrics.DirectionOut, w.kv.TransportTo(req.EngineID), wrote.Bytes, wrote.Took)
	if err := w.kv.Notify(ctx, req.EngineID, out.PrefillNotice); err != nil {
		return out, fmt.Errorf("tell %s: %w", req.Worker, err)
	}
	pointNotified.Hit()
	return out, nil
}

// cause prefers the reason why a context ended to the bare fact.
func (w *Worker) cause(ctx context.Context, err error) error {
	if c := context.Cause(ctx); c != nil && errors.Is(err, context.Canceled) {
		return c
	}
	return err
}

// tell sends a notice as well as it can; the decode worker's deadline does the rest.
func (w *Worker) tell(ctx context.Context, req protocol.RemotePrefillRequest, o outcome) {
	err := w.peers.Ensure(ctx, req.EngineID)
	if err == nil {
		err = w.kv.Notify(ctx, req.EngineID, o.PrefillNotice)
	}
	if err != nil {
		w.log.Debug("decode worker not told", "request", req.RequestID, "error", err)
	}
}
