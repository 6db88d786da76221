package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
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
	bytes   int64
	took    time.Duration
	exposed time.Duration // from the end of the computation to the last block
}

type readyBlocks struct {
	tokens int
	table  []int32
	at     time.Time // when the computation was first known to be this far
}

func newBlockWriter(w *Worker, req protocol.RemotePrefillRequest, ticket nixl.TicketID) *blockWriter {
	return &blockWriter{w: w, req: req, ticket: ticket, ready: make(chan readyBlocks, 1)}
}

// progress takes in how far the computation is; it never blocks. It is called
// from one goroutine at a time.
func (b *blockWriter) progress(tokens int, table []int32) {
	r := readyBlocks{tokens, table, time.Now()}
	for {
		select {
		case b.ready <- r:
			return
		case older := <-b.ready: // of no use any more
			if older.tokens == tokens {
				r.at = older.at
			}
		}
	}
}

// run writes until all blocks are there. When it returns no transfer is under way.
func (b *blockWriter) run(ctx context.Context) error {
	bs := b.w.info.KV.BlockSize
	next := b.req.ComputedBlocks
	move := b.w.moves.begin(cluster.Transfer{
		RequestID: b.req.RequestID, Direction: cluster.TransferOut, Peer: b.req.Worker, Kind: cluster.TransferWrite,
		State: cluster.TransferActive, Blocks: len(b.req.BlockIDs) - next, BlocksDone: new(int),
	})
	defer move.end()
	prepared := false
	for next < len(b.req.BlockIDs) {
		var r readyBlocks
		select {
		case r = <-b.ready:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if !prepared {
			prepared = true
			b.prepare(ctx, r.table)
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
		if next == b.req.ComputedBlocks {
			pointFirstWritten.Hit()
		}
		next = upto
		move.reach(next - b.req.ComputedBlocks)
		b.exposed = time.Since(r.at)
	}
	pointAllWritten.Hit()
	return nil
}

// prepare makes the last block resident if it stays partly filled: what is not computed
// of it is written for the first time when it is read here.
func (b *blockWriter) prepare(ctx context.Context, table []int32) {
	if len(b.req.TokenIDs)%b.w.info.KV.BlockSize != 0 {
		last := len(b.req.BlockIDs) - 1
		b.w.resident.ensure(ctx, table[last:last+1])
	}
}

func (b *blockWriter) write(ctx context.Context, from, to []int32) error {
	took, err := b.w.writeBlocks(ctx, blockTarget{b.req.EngineID, b.req.Worker, b.ticket, b.req.Deadline}, from, to)
	if err != nil {
		return err
	}
	b.bytes += int64(len(to)) * b.w.blockBytes
	b.took += took
	return nil
}

// blockTarget is where blocks are written to.
type blockTarget struct {
	agent, worker string // NIXL agent, and name for people
	ticket        nixl.TicketID
	deadline      time.Time
}

// writeBlocks writes blocks of this worker's pool over those of another worker's.
// When it returns no transfer is under way. A refused ticket is errUnwanted.
func (w *Worker) writeBlocks(ctx context.Context, target blockTarget, from, to []int32) (took time.Duration, err error) {
	begin := time.Now()
	t, err := w.transfer(nixl.Write, from, target.agent, to, nixl.TransferOpts{Ticket: target.ticket, Deadline: target.deadline})
	if err != nil {
		return 0, fmt.Errorf("write %d blocks to %s: %w", len(to), target.worker, err)
	}
	t.Post()
	select {
	case <-t.Done():
	case <-ctx.Done():
		// Ask for the end, then wait for it: the blocks are still being read.
		t.Release()
		<-t.Done()
		return 0, context.Cause(ctx)
	}
	err = t.Err()
	t.Release()
	switch {
	case errors.Is(err, nixl.ErrNotAllowed):
		return 0, fmt.Errorf("%w: %w", errUnwanted, err)
	case err != nil:
		return 0, fmt.Errorf("write %d blocks to %s: %w", len(to), target.worker, err)
	}
	return time.Since(begin), nil
}
