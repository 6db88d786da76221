package decode

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/worker/role"
)

// arrivals are the hand-overs that this worker takes in, by id.
type arrivals struct {
	mu   sync.Mutex
	byID map[string]*arrival
}

// arrival is one sequence on its way to this worker. The handler of its offer owns it
// from the reservation to the attachment; others reach it through the channels.
type arrival struct {
	id      string
	commits chan commitCall
	attach  chan attachCall
	over    chan struct{} // closed when the handler is done with it
}

type commitCall struct {
	*protocol.HandoverCommit
	answer chan error // capacity 1
}

type attachCall struct {
	tokens []uint32
	answer chan *attached // capacity 1; nil if the sequence has other tokens
}

// attached is a sequence that runs again.
type attached struct {
	id     string // in the engine
	stream *engine.Stream
	notice protocol.PrefillNotice // about the KV that came
}

// begin makes room for one more, nil if there is none.
func (as *arrivals) begin(limit int) *arrival {
	as.mu.Lock()
	defer as.mu.Unlock()
	if len(as.byID) >= limit {
		return nil
	}
	if as.byID == nil {
		as.byID = map[string]*arrival{}
	}
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	a := &arrival{id: hex.EncodeToString(id), commits: make(chan commitCall), attach: make(chan attachCall), over: make(chan struct{})}
	as.byID[a.id] = a
	return a
}

func (as *arrivals) end(a *arrival) {
	as.mu.Lock()
	defer as.mu.Unlock()
	delete(as.byID, a.id)
	close(a.over)
}

func (as *arrivals) get(id string) *arrival {
	as.mu.Lock()
	defer as.mu.Unlock()
	return as.byID[id]
}

func handoverError(kind requestplane.Kind, format string, args ...any) error {
	return &requestplane.RemoteError{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// takeOver reserves blocks for a sequence of another worker, lets that write its KV,
// and keeps the sequence until its frontend has followed it. Whatever goes wrong
// before the commit, the sequence goes on at the other worker.
func (w *Role) takeOver(ctx context.Context, o *protocol.HandoverOffer, send func(any) error) error {
	w.Meter.HandoverStarted(metrics.DirectionIn)
	outcome, cause := metrics.HandoverRefused, error(nil)
	defer func() {
		reason := ""
		if outcome != metrics.HandoverMoved {
			reason = handoverReason(cause)
		}
		w.Meter.HandoverEnded(metrics.DirectionIn, outcome, reason)
	}()
	if cause = w.checkOffer(o); cause != nil {
		return handoverError(requestplane.KindInvalidArgument, "%s", cause)
	}
	a := w.arrivals.begin(w.Limits.Arriving)
	if a == nil {
		cause = requestplane.ErrOverloaded
		return handoverError(requestplane.KindOverloaded, "%s is receiving %d sequences already", w.Worker, w.Limits.Arriving)
	}
	defer w.arrivals.end(a)
	deadline := o.Deadline
	if latest := time.Now().Add(w.Limits.Whole); deadline.After(latest) {
		deadline = latest
	}
	constraint, err := w.constraint(ctx, o.Request.Guided)
	if err != nil {
		cause = err
		return err
	}
	in, err := w.Engine.Import(ctx, w.engineRequest(&o.Request, constraint), o.Room)
	if err != nil {
		cause = err
		return role.RemoteError(err)
	}
	outcome = metrics.HandoverFailed
	move := w.KV.Begin(cluster.Transfer{
		RequestID: in.RequestID, Direction: cluster.TransferIn, Peer: o.Worker, Kind: cluster.TransferHandover,
		State: cluster.TransferActive, Blocks: w.KV.BlocksOf(len(o.Request.TokenIDs)) - in.CachedBlocks,
	})
	moving := sync.OnceFunc(move.End)
	defer moving()
	ticket, err := w.KV.OpenTicket(nixl.Write, in.Blocks[in.CachedBlocks:], deadline, in.RequestID)
	if err != nil {
		in.Release(err)
		cause = err
		return handoverError(requestplane.KindInternal, "open ticket: %s", err)
	}
	pointReserved.Hit()
	call, err := w.awaitCommit(ctx, a, in, deadline, func() error {
		return send(protocol.HandoverGrant{
			Handover: a.id, EngineID: w.KV.Name(),
			BlockIDs: in.Blocks, CachedBlocks: in.CachedBlocks, Ticket: ticket.String(),
		})
	})
	// From here on nobody may write.
	if rerr := w.KV.Revoke(ticket); rerr != nil {
		cause = rerr
		w.Meter.Quarantines.Inc()
		w.Log.Error("blocks quarantined: writes could not be stopped", "request", in.RequestID,
			"blocks", len(in.Blocks)-in.CachedBlocks, "error", rerr)
		lift := in.Quarantine()
		call.reply(rerr)
		w.KV.LiftWhenSafe(in.RequestID, ticket, lift, w.Ending)
		return handoverError(requestplane.KindInternal, "writes could not be stopped: %s", rerr)
	}
	moving() // what follows may wait for the frontend for long
	if err == nil {
		pointTargetRevoked.Hit()
		err = in.Commit(call.TokenIDs, call.Computed)
	}
	if err != nil {
		w.Log.Debug("hand-over abandoned", "request", in.RequestID, "from", o.Worker, "cause", err)
		in.Release(err)
		call.reply(err)
		cause = err
		return role.RemoteError(err)
	}
	w.KV.Moved(call.Bytes, time.Duration(call.WriteNS))
	w.Meter.Transferred(metrics.DirectionIn, w.KV.Transport(call.Transport), call.Bytes, time.Duration(call.WriteNS))
	w.Meter.HandedOver(metrics.DirectionIn, call.Bytes, time.Duration(call.WriteNS))
	call.reply(nil)
	pointParked.Hit()
	outcome = metrics.HandoverMoved
	moved := protocol.PrefillNotice{Bytes: call.Bytes, WriteNS: call.WriteNS, Transport: w.KV.Transport(call.Transport)}
	if cause = w.park(a, in, o, moved); cause != nil {
		outcome = metrics.HandoverLost
	}
	return nil
}

// reply answers whoever commits; it does nothing if nobody did.
func (c *commitCall) reply(err error) {
	if c != nil {
		c.answer <- err
	}
}

// awaitCommit grants an offer and waits until all KV is written, or until it is
// certain that it will not be.
func (w *Role) awaitCommit(ctx context.Context, a *arrival, in *engine.Import, deadline time.Time, grant func() error) (*commitCall, error) {
	if err := grant(); err != nil {
		return nil, fmt.Errorf("answer the offer: %w", err)
	}
	pointGranted.Hit()
	late := time.NewTimer(time.Until(deadline))
	defer late.Stop()
	select {
	case call := <-a.commits:
		pointCommitAsked.Hit()
		return &call, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-in.Context().Done():
		return nil, context.Cause(in.Context())
	case <-late.C:
		return nil, errHandoverLate
	}
}

// commitHandover tells the handler of an offer that the KV is complete.
func (w *Role) commitHandover(ctx context.Context, c *protocol.HandoverCommit, send func(any) error) error {
	a := w.arrivals.get(c.Handover)
	if a == nil {
		return handoverError(requestplane.KindUnavailable, "%s knows no such hand-over: it was abandoned", w.Worker)
	}
	call := commitCall{c, make(chan error, 1)}
	select {
	case a.commits <- call:
	case <-a.over:
		return handoverError(requestplane.KindUnavailable, "the hand-over was abandoned")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := <-call.answer; err != nil { // comes after the ticket's revocation, which is bounded
		return role.RemoteError(err)
	}
	return send(protocol.HandoverCommitted{Until: time.Now().Add(w.Limits.Parked)})
}

// park keeps a sequence whose KV is complete until its frontend asks for it, for a
// limited time. That the source closes the stream of its offer means nothing now. It
// returns why the sequence does not run here. moved says how the KV came.
func (w *Role) park(a *arrival, in *engine.Import, o *protocol.HandoverOffer, moved protocol.PrefillNotice) error {
	late := time.NewTimer(w.Limits.Parked)
	defer late.Stop()
	select {
	case call := <-a.attach:
		if !slices.Equal(call.tokens, in.Tokens()) {
			w.Log.Error("a frontend has other tokens than the sequence that was moved", "request", in.RequestID,
				"from", o.Worker, "here", len(in.Tokens()), "there", len(call.tokens))
			in.Release(context.Canceled)
			call.answer <- nil
			return errOtherTokens
		}
		w.Log.Debug("sequence continues on this worker", "request", in.RequestID, "from", o.Worker, "tokens", len(in.Tokens()))
		call.answer <- &attached{in.RequestID, in.Attach(o.Worker, o.Cached), moved}
		pointAttached.Hit()
	case <-late.C:
		w.Log.Warn("no frontend followed a sequence that was moved here", "request", in.RequestID, "from", o.Worker, "waited", w.Limits.Parked)
		in.Release(context.Canceled)
		return errNotFollowed
	case <-in.Context().Done():
		cause := context.Cause(in.Context())
		in.Release(cause)
		return cause
	}
	return nil
}

// attach makes a sequence run that was moved here, for the frontend that followed it.
// It returns nil if there is none: the request is then one like all others.
func (w *Role) attach(ctx context.Context, p *protocol.PreprocessedRequest) *attached {
	a := w.arrivals.get(p.Handover)
	if a == nil {
		w.Log.Info("a sequence that was moved here was lost and is computed again", "request", p.RequestID)
		return nil
	}
	call := attachCall{p.TokenIDs, make(chan *attached, 1)}
	select {
	case a.attach <- call:
		return <-call.answer
	case <-a.over:
	case <-ctx.Done():
	}
	return nil
}
