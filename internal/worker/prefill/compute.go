package prefill

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/worker/kv"
	"github.com/dynctl/dynctl/internal/worker/media"
)

// serveCall works on one request that came over the request plane.
func (w *Role) serveCall(ctx context.Context, r *requestplane.Request, send func(any) error) error {
	var req protocol.RemotePrefillRequest
	if err := r.Decode(&req); err != nil {
		return err
	}
	notice, err := w.compute(ctx, req)
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
func (w *Role) check(req protocol.RemotePrefillRequest) error {
	there := protocol.KVIdentity{
		ModelSum: req.ModelSum, BlockSize: req.BlockSize, BlockBytes: req.BlockBytes, KVLayout: req.KVLayout, HashSeed: req.HashSeed,
	}
	if err := w.KV.Matches(there, req.Worker); err != nil {
		return fmt.Errorf("%w: %w", errForeign, err)
	}
	want := w.KV.BlocksOf(len(req.TokenIDs))
	if len(req.TokenIDs) == 0 || len(req.BlockIDs) != want || req.ComputedBlocks < 0 || req.ComputedBlocks >= want {
		return fmt.Errorf("%w: %d tokens, %d blocks, %d of them computed", kv.ErrMismatch, len(req.TokenIDs), len(req.BlockIDs), req.ComputedBlocks)
	}
	return nil
}

// compute computes the KV of a prompt and writes it, block by block as it
// becomes ready, into the decode worker's memory; then it tells the decode worker.
func (w *Role) compute(ctx context.Context, req protocol.RemotePrefillRequest) (outcome, error) {
	out := outcome{w.noticeOf(req)}
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
	leave, err := w.Peers.Meet(ctx, req.EngineID, nil)
	if err != nil {
		return out, err
	}
	defer leave()
	pointMetadataLoaded.Hit()
	started := out.PrefillNotice
	started.Phase = protocol.PrefillStarted
	if err := w.KV.Notify(ctx, req.EngineID, started); err != nil {
		return out, fmt.Errorf("tell %s: %w", req.Worker, err)
	}
	pointStartTold.Hit()

	wr, images := w.KV.NewWriter(), w.Images.Of(media.Owner{Request: req.RequestID, Tenant: req.Tenant}, w.Model.Digest, req.TokenIDs, req.Media)
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	c := w.begin(ctx, engine.PrefillRequest{
		// The same prompt may come twice after a redelivery.
		ID: fmt.Sprintf("%s#%d.%s", req.RequestID, req.Attempt, req.Ticket[:8]), Tenant: req.Tenant, Tokens: req.TokenIDs, Progress: wr.Progress,
		Media: images.Media(),
	}, fail)
	defer c.end()
	if err := w.write(ctx, req, ticket, wr, c, &out.PrefillNotice); err != nil {
		return out, cause(ctx, err)
	}
	out.Encoded = images.About()
	if err := w.KV.Notify(ctx, req.EngineID, out.PrefillNotice); err != nil {
		return out, fmt.Errorf("tell %s: %w", req.Worker, err)
	}
	pointNotified.Hit()
	return out, nil
}

// noticeOf returns the part that all notices about a request have in common.
func (w *Role) noticeOf(req protocol.RemotePrefillRequest) protocol.PrefillNotice {
	return protocol.PrefillNotice{RequestID: req.RequestID, Attempt: req.Attempt, Ticket: req.Ticket, Worker: w.Worker}
}

// cause prefers the reason why a context ended to the bare fact.
func cause(ctx context.Context, err error) error {
	if c := context.Cause(ctx); c != nil && errors.Is(err, context.Canceled) {
		return c
	}
	return err
}

// tell sends a notice as well as it can; the decode worker's deadline does the rest.
func (w *Role) tell(ctx context.Context, req protocol.RemotePrefillRequest, o outcome) {
	leave, err := w.Peers.Ensure(ctx, req.EngineID)
	if err == nil {
		defer leave()
		err = w.KV.Notify(ctx, req.EngineID, o.PrefillNotice)
	}
	if err != nil {
		w.Log.Debug("could not notify the decode worker", "request", req.RequestID, "error", err)
	}
}
