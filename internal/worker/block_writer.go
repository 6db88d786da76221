package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/protocol"
)

// blockWriter writes the blocks of one prompt into a decode worker's memory while
// later ones are still being computed.
type blockWriter struct {
	w      *Worker
	req    protocol.RemotePrefillRequest
	ticket nixl.TicketID
	ready  chan readyBlocks // capacity 1, the newest state

	// For the owner of run, after it returned.
	bytes int64
	took  time.Duration
}

type readyBlocks struct {
	tokens int
	table  []int32
}

func newBlockWriter(w *Worker, req protocol.RemotePrefillRequest, ticket nixl.TicketID) *blockWriter {
	return &blockWriter{w: w, req: req, ticket: ticket, ready: make(chan readyBlocks, 1)}
}

// progress takes in how far the computation is; it never blocks. It is called
// from one goroutine at a time.
func (b *blockWriter) progress(tokens int, table []int32) {
	r := readyBlocks{tokens, table}
	for {
		select {
		case b.ready <- r:
			return
		case <-b.ready: // the older state is of no use any more
		}
	}
}

// run writes until all blocks are there. When it returns no transfer is under way.
func (b *blockWriter) run(ctx context.Context) error {
	bs := b.w.info.KV.BlockSize
	next := b.req.ComputedBlocks
	for next < len(b.req.BlockIDs) {
		var r readyBlocks
		select {
		case r = <-b.ready:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		upto := r.tokens / bs
		if r.tokens == len(b.req.TokenIDs) {
			upto = len(b.req.BlockIDs) // with the last, partly filled block
		}
		if upto <= next {
			continue
		}
		if err := b.write(ctx, r.table[next:upto], b.req.BlockIDs[next:upto]); err != nil {
			return err
		}
		next = upto
	}
	return nil
}

func (b *blockWriter) write(ctx context.Context, from, to []int32) error {
	begin := time.Now()
	t, err := b.transfer(from, to)
	if err != nil {
		return fmt.Errorf("write %d blocks to %s: %w", len(to), b.req.Worker, err)
	}
	t.Post()
	select {
	case <-t.Done():
	case <-ctx.Done():
		// Ask for the end, then wait for it: the blocks are still being read.
		t.Release()
		<-t.Done()
		return context.Cause(ctx)
	}
	err = t.Err()
	t.Release()
	switch {
	case errors.Is(err, nixl.ErrNotAllowed):
		return fmt.Errorf("%w: %w", errUnwanted, err)
	case err != nil:
		return fmt.Errorf("write %d blocks to %s: %w", len(to), b.req.Worker, err)
	}
	b.bytes += int64(len(to)) * b.w.blockBytes
	b.took += time.Since(begin)
	return nil
}

// transfer selects the blocks by their ids from both pools. The decode worker's pool
// is looked up for each write: its metadata may have been loaded again.
func (b *blockWriter) transfer(from, to []int32) (*nixl.Transfer, error) {
	region, err := b.w.nixl.RemoteRegion(b.req.EngineID, regionLabel)
	if err != nil {
		return nil, err
	}
	remote, err := b.w.nixl.PrepareRemote(b.req.EngineID, region.Blocks(uint64(b.w.blockBytes)))
	if err != nil {
		return nil, err
	}
	local, err := b.w.nixl.PrepareLocal(b.w.region.Blocks(uint64(b.w.blockBytes)))
	if err != nil {
		return nil, err
	}
	return b.w.nixl.MakeTransfer(nixl.Write, local, from, remote, to, nixl.TransferOpts{
		Ticket: b.ticket, Deadline: b.req.Deadline,
	})
}
