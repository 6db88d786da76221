package decode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/worker/kv"
)

// roomTokens is for how many tokens a target reserves blocks beyond those that the
// sequence has at the offer: they come while the KV is written. Each try that was too
// slow doubles it.
const roomTokens = 256

// tailBlocks is the number of full blocks few enough to be written while the sequence
// stands still.
const tailBlocks = 2

// maxRounds bounds the rounds of writing while the sequence runs: if each takes long
// enough for more blocks to become full, it is paused in the end all the same.
const maxRounds = 8

// leaving is one sequence on its way to one target.
type leaving struct {
	w      *Role
	x      *engine.Export
	to     candidate
	known  int // tokens that the target has from the offer
	grant  protocol.HandoverGrant
	target kv.Peer
	next   int // first block that is not written
	move   *kv.Movement
	bytes  int64
	took   time.Duration
	began  time.Time
}

// handOver moves a sequence to another worker. It returns an error if the sequence is
// still here; it may be paused then. The target's NIXL agent is known.
func (w *Role) handOver(ctx context.Context, x *engine.Export, to candidate, slack int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, w.Limits.Whole, errHandoverLate)
	defer cancel()
	l := &leaving{w: w, x: x, to: to, began: time.Now()}
	// The target gives the reservation up when this call ends.
	release, err := l.offer(ctx, slack)
	if err != nil {
		return fmt.Errorf("%s: %w", to.Worker, err)
	}
	defer release()
	l.move = w.KV.Begin(cluster.Transfer{
		RequestID: x.RequestID, Direction: cluster.TransferOut, Peer: to.Worker, Kind: cluster.TransferHandover,
		State: cluster.TransferActive, Blocks: w.KV.BlocksOf(l.known) - l.grant.CachedBlocks, BlocksDone: new(int),
	})
	defer l.move.End()
	pointOfferGranted.Hit()
	if err := l.writeWhileRunning(ctx); err != nil {
		return fmt.Errorf("%s: %w", to.Worker, err)
	}
	pointCopied.Hit()
	return l.finish(ctx)
}

// offer asks the target to take the sequence over, and reads what it grants.
func (l *leaving) offer(ctx context.Context, slack int) (release func(), err error) {
	w := l.w
	st, err := l.x.State(ctx)
	if err != nil {
		return nil, err
	}
	req, ok := w.requests.advanced(l.x.RequestID, st)
	if !ok {
		return nil, engine.ErrGone
	}
	deadline, _ := ctx.Deadline()
	id := w.KV.Identity()
	l.known = len(st.Tokens)
	stream, err := w.others.Call(ctx, l.to.Instance, l.x.RequestID, nil, protocol.HandoverRequest{Offer: &protocol.HandoverOffer{
		Request: req, Room: l.known + min(slack, req.Stop.MaxTokens), MaxModelLen: w.Engine.MaxModelLen(), Cached: st.Cached, Worker: w.Worker,
		BlockSize: id.BlockSize, BlockBytes: id.BlockBytes, KVLayout: id.KVLayout, HashSeed: id.HashSeed, Deadline: deadline,
	}})
	if err != nil {
		return nil, err
	}
	answer, cancel := context.WithTimeoutCause(ctx, w.Limits.Ask, errNoAnswer)
	defer cancel()
	err = stream.Recv(answer, &l.grant)
	var remote *requestplane.RemoteError
	switch {
	case errors.As(err, &remote):
		err = fmt.Errorf("%w: %w", errNotTaken, err)
	case err == nil:
		err = l.check()
	}
	if err != nil {
		stream.Close()
		return nil, err
	}
	return stream.Close, nil
}

// check refuses a grant that makes no sense.
func (l *leaving) check() error {
	g := &l.grant
	ticket, err := nixl.ParseTicketID(g.Ticket)
	if err != nil {
		return fmt.Errorf("%w: %w", kv.ErrMismatch, err)
	}
	if g.EngineID != l.to.EngineID {
		return fmt.Errorf("%w: blocks of %s, not of %s", kv.ErrMismatch, g.EngineID, l.to.EngineID)
	}
	if g.CachedBlocks < 0 || g.CachedBlocks > l.known/l.w.KV.BlockSize() || len(g.BlockIDs) < l.w.KV.BlocksOf(l.known) {
		return fmt.Errorf("%w: %d blocks, %d of them cached, for %d tokens", kv.ErrMismatch, len(g.BlockIDs), g.CachedBlocks, l.known)
	}
	l.target = kv.Peer{Agent: g.EngineID, Worker: l.to.Worker, Ticket: ticket, Deadline: time.Now().Add(l.w.Limits.Whole)}
	l.next = g.CachedBlocks
	return nil
}

// writeWhileRunning writes full blocks, and those that became full meanwhile, until
// few are left.
func (l *leaving) writeWhileRunning(ctx context.Context) error {
	for range maxRounds {
		full, err := l.x.Full(ctx, l.next)
		if err != nil {
			return err
		}
		if err := l.write(ctx, full); err != nil {
			return err
		}
		if len(full) <= tailBlocks {
			return nil
		}
	}
	return nil
}

func (l *leaving) write(ctx context.Context, blocks []int32) error {
	if len(blocks) == 0 {
		return nil
	}
	if l.next+len(blocks) > len(l.grant.BlockIDs) {
		return errOutgrown
	}
	took, err := l.w.KV.Write(ctx, l.target, blocks, l.grant.BlockIDs[l.next:l.next+len(blocks)])
	if err != nil {
		return err
	}
	l.next += len(blocks)
	l.move.Reach(l.next - l.grant.CachedBlocks)
	l.bytes += int64(len(blocks)) * l.w.KV.BlockBytes()
	l.took += took
	return nil
}

// finish pauses the sequence, writes what is left, has the target commit and sends the
// frontend there. Until the frontend is told, the sequence can go on here.
func (l *leaving) finish(ctx context.Context) error {
	w, paused, outcome := l.w, time.Now(), metrics.HandoverFailed
	defer func() { w.Meter.HandoverPaused(outcome, time.Since(paused)) }()
	ctx, cancel := context.WithTimeoutCause(ctx, w.Limits.Pause, errPausedTooLong)
	defer cancel()
	st, rest, err := l.x.Pause(ctx, l.next)
	if err == nil {
		pointPaused.Hit()
		err = l.write(ctx, rest)
	}
	if err == nil {
		pointRestWritten.Hit()
		err = l.commit(ctx, protocol.HandoverCommit{
			Handover: l.grant.Handover, TokenIDs: st.Tokens[l.known:], Computed: st.Computed, Bytes: l.bytes, WriteNS: int64(l.took),
			Transport: w.KV.TransportTo(l.grant.EngineID),
		})
	}
	if err != nil {
		return fmt.Errorf("%s: %w", l.to.Worker, err)
	}
	pointCommitted.Hit()
	if !l.x.Complete(protocol.Moved{Worker: l.to.Worker, InstanceID: l.to.InstanceID, Handover: l.grant.Handover}) {
		return engine.ErrGone
	}
	outcome = metrics.HandoverMoved
	pointMoved.Hit()
	w.KV.Moved(l.bytes, l.took)
	w.Meter.HandedOver(metrics.DirectionOut, l.bytes, time.Since(l.began))
	w.Meter.Transferred(metrics.DirectionOut, w.KV.TransportTo(l.grant.EngineID), l.bytes, l.took)
	w.Log.Info("sequence moved", "request", l.x.RequestID, "to", l.to.Worker, "tokens", len(st.Tokens),
		"blocks", l.next, "cached", l.grant.CachedBlocks, "bytes", l.bytes)
	return nil
}

func (l *leaving) commit(ctx context.Context, c protocol.HandoverCommit) error {
	stream, err := l.w.others.Call(ctx, l.to.Instance, l.x.RequestID, nil, protocol.HandoverRequest{Commit: &c})
	if err != nil {
		return err
	}
	defer stream.Close()
	var done protocol.HandoverCommitted
	return stream.Recv(ctx, &done)
}

// askRoom asks a worker how much room it has.
func (w *Role) askRoom(ctx context.Context, to cluster.Instance) (room protocol.HandoverRoom, err error) {
	ctx, cancel := context.WithTimeout(ctx, w.Limits.Ask)
	defer cancel()
	stream, err := w.others.Call(ctx, to, "room", nil, protocol.HandoverRequest{})
	if err != nil {
		return room, err
	}
	defer stream.Close()
	if err = stream.Recv(ctx, &room); errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return room, err
}

// candidate is a worker that may take a sequence over.
type candidate struct {
	cluster.Instance
	protocol.HandoverRoom
}

// load is the share of places that are taken.
func (c candidate) load() float64 { return float64(c.Sequences) / float64(max(c.MaxSequences, 1)) }

// leastLoaded sorts candidates by load, those with more free blocks first among equals.
func leastLoaded(cs []candidate) {
	slices.SortStableFunc(cs, func(a, b candidate) int {
		switch {
		case a.load() != b.load():
			if a.load() < b.load() {
				return -1
			}
			return 1
		default:
			return b.FreeBlocks - a.FreeBlocks
		}
	})
}
