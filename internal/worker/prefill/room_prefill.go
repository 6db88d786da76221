package prefill

import (
	"context"
	"fmt"
	"slices"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/worker/kv"
	"github.com/dynctl/dynctl/internal/worker/media"
)

// serveRoom is the bootstrap endpoint: a decode worker enters a room with its
// reservation and hears when it is filled.
func (w *Role) serveRoom(ctx context.Context, r *requestplane.Request, send func(any) error) error {
	var j protocol.JoinRoom
	if err := r.Decode(&j); err != nil {
		return err
	}
	if err := w.check(j.Request); err != nil {
		return &requestplane.RemoteError{Kind: requestplane.KindInvalidArgument, Message: err.Error()}
	}
	n, err := w.rooms.join(ctx, j.Room, j.Request)
	if err != nil {
		return prefillError(err)
	}
	return send(n)
}

// prefillInRoom computes a prompt and writes its KV, block by block as it becomes
// ready, into the memory of the decode worker that comes to the room.
func (w *Role) prefillInRoom(ctx context.Context, p *protocol.PreprocessedRequest, send func(any) error) (err error) {
	id := p.Disagg.Bootstrap.Room
	rm, err := w.rooms.enter(id, p.Disagg.Deadline)
	if err != nil {
		w.Meter.Room(metrics.RoomRefused)
		return prefillError(err)
	}
	outcome := metrics.RoomUnmet
	defer func() {
		w.rooms.leave(id, rm, err)
		w.Meter.Room(outcome)
	}()
	pointRoomEntered.Hit()

	// The frontend asks the decode worker only when it knows that the room is open.
	if err := send(protocol.EngineOutput{}); err != nil {
		return err
	}
	pointRoomOpened.Hit()
	// The writer collects progress from the first chunk on; it learns where to write
	// when the decode worker comes.
	wr := w.KV.NewWriter()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	images := w.Images.Of(media.Owner{Request: p.RequestID, Tenant: p.Tenant}, w.Model.Digest, p.TokenIDs, p.Media)
	c := w.begin(ctx, engine.PrefillRequest{ID: p.RequestID + "#room", Tenant: p.Tenant, Tokens: p.TokenIDs, Media: images.Media(), Progress: wr.Progress}, fail)
	defer c.end()

	// The frontend counts a prompt that is computed as waiting no longer, also while the
	// decode worker has not come.
	computed := func() error {
		if c.err != nil {
			return prefillError(c.err)
		}
		return send(protocol.EngineOutput{Timing: w.timing(c.held, c.took, images)})
	}
	var j *joining
	for done := c.done; j == nil; {
		select {
		case j = <-rm.joins:
		case <-done:
			if err := computed(); err != nil {
				return err
			}
			computed, done = nil, nil
		case <-ctx.Done():
			return prefillError(context.Cause(ctx))
		}
	}
	pointRoomMet.Hit()
	outcome = metrics.RoomFailed
	defer j.onLeave(func() { fail(kv.ErrUnwanted) })()
	n, err := w.writeInRoom(ctx, j.req, p, wr, c)
	if err != nil {
		return prefillError(cause(ctx, err)) // the decode worker hears it when the room closes
	}
	n.Encoded = images.About()
	if computed != nil {
		if err := computed(); err != nil {
			return err
		}
	}
	j.answer <- n
	outcome = metrics.RoomDone
	pointRoomAnswered.Hit()
	return send(protocol.EngineOutput{Finish: protocol.FinishLength})
}

// writeInRoom writes the prompt that is being computed for a decode worker, whose prompt
// must be the same.
func (w *Role) writeInRoom(ctx context.Context, req protocol.RemotePrefillRequest, p *protocol.PreprocessedRequest, wr *kv.Writer, c *computation) (protocol.PrefillNotice, error) {
	n := w.noticeOf(req)
	if !slices.Equal(req.TokenIDs, p.TokenIDs) || !protocol.SameMedia(req.Media, p.Media) {
		return n, fmt.Errorf("%w: %s asks for another prompt than the frontend", kv.ErrMismatch, req.Worker)
	}
	ticket, err := nixl.ParseTicketID(req.Ticket)
	if err != nil {
		return n, fmt.Errorf("%w: %w", kv.ErrMismatch, err)
	}
	leave, err := w.Peers.Meet(ctx, req.EngineID, nil)
	if err != nil {
		return n, err
	}
	defer leave()
	err = w.write(ctx, req, ticket, wr, c, &n)
	return n, err
}
