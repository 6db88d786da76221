package kv

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/protocol"
)

// Writer writes the blocks of one prompt into a decode worker's memory while later ones
// are still being computed. It collects progress from the first chunk on; it may learn
// later where to write.
type Writer struct {
	p     *Plane
	ready chan readyBlocks // capacity 1, the newest state
}

type readyBlocks struct {
	tokens int
	table  []int32
	at     time.Time // when the computation was first known to be this far
}

// Written is the result of a writer.
type Written struct {
	Bytes   int64
	Took    time.Duration
	Exposed time.Duration // from the end of the computation to the last block
}

// NewWriter returns a writer for one prompt.
func (p *Plane) NewWriter() *Writer { return &Writer{p: p, ready: make(chan readyBlocks, 1)} }

// Progress takes in how far the computation is; it never blocks. It is called
// from one goroutine at a time.
func (w *Writer) Progress(tokens int, table []int32) {
	r := readyBlocks{tokens, table, time.Now()}
	for {
		select {
		case w.ready <- r:
			return
		case older := <-w.ready: // of no use any more
			if older.tokens == tokens {
				r.at = older.at
			}
		}
	}
}

// Run writes, under a ticket of the decode worker, until all blocks of the request are
// there. When it returns no transfer is under way.
func (w *Writer) Run(ctx context.Context, req protocol.RemotePrefillRequest, ticket nixl.TicketID) (out Written, err error) {
	peer := Peer{Agent: req.EngineID, Worker: req.Worker, Ticket: ticket, Deadline: req.Deadline}
	bs := w.p.BlockSize()
	next := req.ComputedBlocks
	move := w.p.Begin(cluster.Transfer{
		RequestID: req.RequestID, Direction: cluster.TransferOut, Peer: req.Worker, Kind: cluster.TransferWrite,
		State: cluster.TransferActive, Blocks: len(req.BlockIDs) - next, BlocksDone: new(int),
	})
	defer move.End()
	prepared := false
	for next < len(req.BlockIDs) {
		var r readyBlocks
		select {
		case r = <-w.ready:
		case <-ctx.Done():
			return out, context.Cause(ctx)
		}
		if !prepared {
			prepared = true
			w.prepare(ctx, req, r.table)
		}
		upto := r.tokens / bs
		if r.tokens == len(req.TokenIDs) {
			upto = len(req.BlockIDs) // with the last, partly filled block
		}
		if upto <= next {
			continue
		}
		took, err := w.p.Write(ctx, peer, r.table[next:upto], req.BlockIDs[next:upto])
		if err != nil {
			return out, err
		}
		out.Bytes += int64(upto-next) * w.p.BlockBytes()
		out.Took += took
		if next == req.ComputedBlocks {
			pointFirstWritten.Hit()
		}
		next = upto
		move.Reach(next - req.ComputedBlocks)
		out.Exposed = time.Since(r.at)
	}
	pointAllWritten.Hit()
	return out, nil
}

// prepare makes the last block resident if it stays partly filled: what is not computed
// of it is written for the first time when it is read here.
func (w *Writer) prepare(ctx context.Context, req protocol.RemotePrefillRequest, table []int32) {
	if len(req.TokenIDs)%w.p.BlockSize() != 0 {
		last := len(req.BlockIDs) - 1
		w.p.MakeResident(ctx, table[last:last+1])
	}
}

// Write writes blocks of this worker's pool over those of another worker's. When it
// returns no transfer is under way. A refused ticket is ErrUnwanted.
func (p *Plane) Write(ctx context.Context, peer Peer, from, to []int32) (took time.Duration, err error) {
	begin := time.Now()
	x, err := p.Prepare(nixl.Write, from, peer, to)
	if err == nil {
		x.Post()
		err = x.Wait(ctx)
	}
	switch {
	case err == nil:
		return time.Since(begin), nil
	case ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
		return 0, err
	case errors.Is(err, nixl.ErrNotAllowed):
		return 0, fmt.Errorf("%w: %w", ErrUnwanted, err)
	}
	return 0, fmt.Errorf("write %d blocks to %s: %w", len(to), peer.Worker, err)
}
