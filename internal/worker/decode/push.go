package decode

import (
	"context"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/protocol"
)

// asker has a prefill worker fill the blocks of a request and waits for the end; wt
// hears of notifications for the request's ticket.
type asker func(ctx context.Context, req protocol.RemotePrefillRequest, wt *waiter) (protocol.PrefillNotice, error)

// push has somebody else write the KV into the reservation, under a ticket of its own.
// When it returns, nobody writes under that ticket any more, or the blocks are in
// quarantine and the reservation has ended.
func (f *filling) push(ctx context.Context, way protocol.PrefillWay, ask asker) {
	w, r := f.w, f.r
	f.way = way
	f.move.Become(cluster.TransferWrite)
	deadline, _ := ctx.Deadline()
	ticket, err := w.KV.OpenTicket(nixl.Write, r.Blocks[r.CachedBlocks:], deadline, r.RequestID)
	if err != nil {
		f.err = fmt.Errorf("%w: %w", errNoTicket, err)
		return
	}
	wt := w.waiters.add(ticket.String(), f.move)
	defer w.waiters.remove(ticket.String())
	pointTicketOpened.Hit()
	defer f.makeResident(ctx)()

	id := w.KV.Identity()
	req := protocol.RemotePrefillRequest{
		RequestID: r.RequestID, Tenant: f.tenant, Attempt: 1, ModelSum: id.ModelSum,
		TokenIDs: r.Prompt[:r.Wanted()], Media: f.media, EngineID: w.KV.Name(), Worker: w.Worker,
		BlockIDs: r.Blocks, ComputedBlocks: r.CachedBlocks,
		BlockSize: id.BlockSize, BlockBytes: id.BlockBytes, KVLayout: id.KVLayout, HashSeed: id.HashSeed,
		Ticket: ticket.String(), Deadline: deadline, EnqueuedAt: time.Now(),
	}
	if f.notice, f.err = ask(ctx, req, wt); f.err == nil {
		pointTold.Hit()
	}

	// From here on nobody may write: a worker that was slow, or a second delivery
	// of the message, would hurt whoever has the blocks next.
	if err := w.KV.Revoke(ticket); err != nil {
		w.Log.Error("blocks quarantined: writes could not be stopped", "request", r.RequestID,
			"blocks", len(r.Blocks)-r.CachedBlocks, "error", err)
		f.over = true
		w.Meter.Quarantines.Inc()
		w.Meter.Prefill(metrics.PrefillFallback, string(f.way), whyQuarantined)
		w.KV.LiftWhenSafe(r.RequestID, ticket, r.Quarantine(whyQuarantined), w.Ending)
		return
	}
	pointTicketRevoked.Hit()
}

// makeResident prepares the memory of the blocks that somebody will write; the returned
// function ends that.
func (f *filling) makeResident(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.w.KV.MakeResident(ctx, f.r.Blocks[f.r.CachedBlocks:])
	}()
	return func() {
		cancel()
		<-done
	}
}
