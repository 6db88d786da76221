package decode

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/worker/kv"
)

// readNoticeTimeout bounds the word to a prefill worker that its blocks were read. If
// it does not arrive, the ticket's deadline ends the hold.
const readNoticeTimeout = time.Second

// pull reads the KV that a prefill worker holds into the reservation. The blocks are
// written by this worker's own transfer alone, so that nothing has to be fenced: when
// pull returns it has ended.
func (f *filling) pull(ctx context.Context, p *protocol.DisaggregatedParams) {
	f.way, f.tried = protocol.WayPull, p.ID
	f.move.Become(cluster.TransferRead)
	ctx, cancel := context.WithDeadlineCause(ctx, p.Deadline, errRemoteTimeout)
	defer cancel()
	ticket, err := f.w.readable(p, f.r.Prompt)
	if err == nil {
		err = f.read(ctx, p, ticket)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	f.err = err
	if errors.Is(err, kv.ErrMismatch) {
		f.w.Log.Error("held KV refused", "request", f.r.RequestID, "error", err)
	}
	f.after = func() { f.tellHolder(p, err) }
}

// readable checks what a prefill worker has answered against this worker and the
// prompt.
func (w *Role) readable(p *protocol.DisaggregatedParams, prompt []uint32) (nixl.TicketID, error) {
	if err := w.KV.Matches(p.KVIdentity, p.Worker); err != nil {
		return nixl.TicketID{}, err
	}
	if want := len(prompt) - 1; p.Tokens != want || len(p.BlockIDs) != w.KV.BlocksOf(want) {
		return nixl.TicketID{}, fmt.Errorf("%w: %s holds %d tokens in %d blocks, %s needs %d tokens in %d blocks",
			kv.ErrMismatch, p.Worker, p.Tokens, len(p.BlockIDs), w.Worker, want, w.KV.BlocksOf(want))
	}
	ticket, err := nixl.ParseTicketID(p.Ticket)
	if err != nil {
		return ticket, fmt.Errorf("%w: %s: %w", kv.ErrMismatch, p.Worker, err)
	}
	return ticket, nil
}

// read moves the blocks that are not cached here.
func (f *filling) read(ctx context.Context, p *protocol.DisaggregatedParams, ticket nixl.TicketID) error {
	leave, err := f.w.Peers.Meet(ctx, p.EngineID, nil)
	if err != nil {
		return fmt.Errorf("%w: %w", errPrefillLost, err)
	}
	defer leave()
	pointPullLoaded.Hit()
	theirs := p.BlockIDs[f.r.CachedBlocks:]
	deadline, _ := ctx.Deadline()
	begin := time.Now()
	peer := kv.Peer{Agent: p.EngineID, Worker: p.Worker, Ticket: ticket, Deadline: deadline}
	x, err := f.w.KV.Prepare(nixl.Read, f.r.Blocks[f.r.CachedBlocks:], peer, theirs)
	if err == nil {
		f.move.Active(p.Worker)
		x.Post()
		pointPullPosted.Hit()
		err = x.Wait(ctx)
	}
	if err != nil {
		why := errPullFailed
		if errors.Is(err, nixl.ErrRemoteDisconnect) || !f.w.KV.Agent().Known(p.EngineID, "") {
			why = errPrefillLost
		}
		return fmt.Errorf("%w: read %d blocks of %s: %w", why, len(theirs), p.Worker, err)
	}
	took := int64(time.Since(begin)) // all of it after the computation
	pointPullRead.Hit()
	f.notice = protocol.PrefillNotice{
		Worker: p.Worker, Tokens: p.Tokens, Bytes: int64(len(theirs)) * f.w.KV.BlockBytes(), WriteNS: took, ExposedNS: took,
		Transport: f.w.KV.TransportTo(p.EngineID),
	}
	return nil
}

// tellHolder tells the prefill worker that its blocks are not needed any longer, as
// well as it can.
func (f *filling) tellHolder(p *protocol.DisaggregatedParams, cause error) {
	w := f.w
	n := protocol.PrefillNotice{RequestID: f.r.RequestID, Ticket: p.Ticket, Phase: protocol.PrefillRead, Worker: w.Worker}
	if cause != nil {
		n.Error = cause.Error()
	} else {
		n.Tokens, n.Bytes, n.WriteNS, n.Transport = p.Tokens, f.notice.Bytes, f.notice.WriteNS, f.notice.Transport
	}
	ctx, cancel := context.WithTimeout(context.Background(), readNoticeTimeout)
	defer cancel()
	leave, err := w.Peers.Ensure(ctx, p.EngineID)
	if err == nil {
		defer leave()
		err = w.KV.Notify(ctx, p.EngineID, n)
	}
	if err != nil {
		w.Log.Debug("could not notify the prefill worker that its KV was read", "peer", p.EngineID, "error", err)
		return
	}
	pointPullTold.Hit()
}
