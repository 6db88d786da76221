package prefill

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/worker/media"
	"github.com/dynctl/dynctl/internal/worker/role"
)

// holds are the prompts whose KV this prefill worker keeps for a reader, by ticket.
// Each belongs to the goroutine of the request that made it.
type holds struct {
	mu       sync.Mutex
	byTicket map[string]chan protocol.PrefillNotice // capacity 1
}

func newHolds() *holds { return &holds{byTicket: map[string]chan protocol.PrefillNotice{}} }

func (h *holds) add(ticket string) <-chan protocol.PrefillNotice {
	read := make(chan protocol.PrefillNotice, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.byTicket[ticket] = read
	return read
}

func (h *holds) remove(ticket string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.byTicket, ticket)
}

// read takes in that a reader is done. A notice for a hold that has ended already, or
// a second one, means nothing any more.
func (h *holds) read(n protocol.PrefillNotice) {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case h.byTicket[n.Ticket] <- n:
	default:
	}
}

// Why the KV of a prompt is held no longer.
var (
	errHoldExpired = errors.New("deadline passed")
	errHolderEnds  = errors.New("the prefill worker ends")
)

// serveFirstHop serves the first hop of a request whose frontend has chosen this worker:
// it computes the KV of all but the last prompt token. With a bootstrap room it meets
// the decode worker there; without one it answers with where the KV is, and keeps it
// until it was read, its deadline passes, the caller leaves or work ends.
func (w *Role) serveFirstHop(ctx, work context.Context, r *requestplane.Request, send func(any) error) error {
	var p protocol.PreprocessedRequest
	if err := r.Decode(&p); err != nil {
		return err
	}
	if err := w.CheckRequest(&p); err != nil {
		return err
	}
	if len(p.TokenIDs) < 2 || p.Disagg.Deadline.IsZero() {
		return &requestplane.RemoteError{Kind: requestplane.KindInvalidArgument, Message: fmt.Sprintf(
			"prefill of %d tokens until %s: expected at least 2 tokens and a deadline", len(p.TokenIDs), p.Disagg.Deadline)}
	}
	ctx, cancel := context.WithDeadlineCause(ctx, p.Disagg.Deadline, errHoldExpired)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(work, func() { stop(errHolderEnds) })()
	p.TokenIDs = p.TokenIDs[:len(p.TokenIDs)-1]
	if p.Disagg.Bootstrap != nil {
		return w.prefillInRoom(ctx, &p, send)
	}
	begin := time.Now()
	images := w.Images.Of(media.Owner{Request: p.RequestID, Tenant: p.Tenant}, w.Model.Digest, p.TokenIDs, p.Media)
	held, err := w.Engine.Prefill(ctx, engine.PrefillRequest{ID: p.RequestID + "#held", Tenant: p.Tenant, Tokens: p.TokenIDs, Media: images.Media()})
	if err != nil {
		return prefillError(err)
	}
	pointHoldComputed.Hit()
	return w.hold(ctx, &p, held, w.timing(held, time.Since(begin), images), send)
}

// hold keeps the KV of a prompt readable. The blocks go back when nobody reads them
// any more, which the revoked ticket proves.
func (w *Role) hold(ctx context.Context, p *protocol.PreprocessedRequest, held *engine.Held, timing *protocol.Timing, send func(any) error) error {
	ticket, err := w.KV.OpenTicket(nixl.Read, held.Blocks, p.Disagg.Deadline, p.RequestID)
	if err != nil {
		held.Release()
		return &requestplane.RemoteError{Kind: requestplane.KindOverloaded, Message: "open ticket: " + err.Error()}
	}
	pointHoldOpened.Hit()
	begin := time.Now()
	move := w.KV.Begin(cluster.Transfer{
		RequestID: p.RequestID, Direction: cluster.TransferOut, Kind: cluster.TransferRead, State: cluster.TransferWaits, Blocks: len(held.Blocks),
	})
	defer move.End()
	read := w.holds.add(ticket.String())
	defer w.holds.remove(ticket.String())
	defer w.letGo(p.RequestID, ticket, held)
	outcome := metrics.HoldLeft
	defer func() { w.Meter.Hold(outcome, time.Since(begin)) }()
	err = send(protocol.EngineOutput{Timing: timing, Params: &protocol.DisaggregatedParams{
		Worker: w.Worker, ID: w.ID(), EngineID: w.KV.Name(), KVIdentity: w.KV.Identity(),
		BlockIDs: held.Blocks, Tokens: held.Tokens, Ticket: ticket.String(), Deadline: p.Disagg.Deadline,
	}})
	if err != nil {
		return err
	}
	pointHoldTold.Hit()
	why := ""
	select {
	case n := <-read:
		pointHoldRead.Hit()
		outcome = metrics.HoldUnread
		if why = n.Error; why == "" {
			outcome = metrics.HoldRead
			w.KV.Moved(n.Bytes, time.Duration(n.WriteNS))
			w.Meter.Transferred(metrics.DirectionOut, w.KV.Transport(n.Transport), n.Bytes, time.Duration(n.WriteNS))
		}
	case <-held.Ending():
		outcome, why = metrics.HoldCut, errHolderEnds.Error()
	case <-ctx.Done():
		cause := context.Cause(ctx)
		why = cause.Error()
		switch {
		case errors.Is(cause, errHoldExpired):
			outcome = metrics.HoldExpired
		case errors.Is(cause, errHolderEnds):
			outcome = metrics.HoldCut
		}
	}
	w.Log.Debug("hold of KV ended", "request", p.RequestID, "held", time.Since(begin), "blocks", len(held.Blocks), "unread", why)
	return nil
}

// letGo ends the ticket of a hold and gives its blocks back. A reader that does not
// end, because its process stands still, keeps them: they are reused only after it
// is known to read no more.
func (w *Role) letGo(request string, ticket nixl.TicketID, held *engine.Held) {
	for told := false; ; {
		err := w.KV.Revoke(ticket)
		if err == nil {
			break
		}
		select {
		case <-held.Ending():
			w.Log.Warn("worker stops: held KV freed, although a decode worker may still be reading it", "request", request, "error", err)
			held.Release()
			return
		default:
		}
		if !told {
			told = true
			w.Log.Error("held KV is kept: its reader does not end", "request", request, "blocks", len(held.Blocks), "error", err)
		}
	}
	pointHoldRevoked.Hit()
	held.Release()
}

// prefillError translates the failure of a first hop for the frontend, which tries
// another worker or lets the decode worker prefill.
func prefillError(err error) error {
	var remote *requestplane.RemoteError
	if errors.As(err, &remote) {
		return remote
	}
	if errors.Is(err, errHoldExpired) || errors.Is(err, errHolderEnds) {
		return &requestplane.RemoteError{Kind: requestplane.KindUnavailable, Message: err.Error()}
	}
	return role.RemoteError(err)
}
