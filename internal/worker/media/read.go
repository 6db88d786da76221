package media

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/protocol"
)

// Errors of reading embeddings.
var (
	// ErrMismatch means that an encode worker answers with what does not fit the prompt or
	// the model.
	ErrMismatch = errors.New("embeddings do not match")
	errTimeout  = errors.New("the encode worker took too long")
)

// Timeout bounds one try to get the embeddings of a part from an encode worker.
const Timeout = 60 * time.Second

// read has an encode worker compute the embeddings of a part, and reads them over NIXL.
func (f *Finder) read(ctx context.Context, inst cluster.Instance, m *Images, part *protocol.MediaPart, chosen string) ([][]float32, error) {
	if f.p.arena == nil {
		return nil, ErrNoEncoder
	}
	ctx, cancel := context.WithTimeoutCause(ctx, Timeout, errTimeout)
	defer cancel()
	f.encoders.Busy(inst.InstanceID, 1)
	defer f.encoders.Busy(inst.InstanceID, -1)
	deadline, _ := ctx.Deadline()
	s, err := f.encoders.Call(ctx, inst, m.of.Request, nil, protocol.EncodeRequest{
		RequestID: m.of.Request, Tenant: m.of.Tenant, ModelSum: m.model, Part: *part, EngineID: f.p.cfg.KV.Name(), Worker: f.p.cfg.Worker, Deadline: deadline,
	})
	if err != nil {
		return nil, err
	}
	defer s.Close() // which ends the offer, if the notice of the transfer has not
	pointAsked.Hit()
	var reply protocol.EncodeReply
	if err := s.Recv(ctx, &reply); err != nil {
		return nil, err
	}
	pointAnswer.Hit()
	m.mu.Lock()
	m.told = time.Now()
	m.mu.Unlock()
	return f.transfer(ctx, &reply, m, part, deadline, chosen)
}

// transfer reads what an encode worker offers.
func (f *Finder) transfer(ctx context.Context, reply *protocol.EncodeReply, m *Images, part *protocol.MediaPart, deadline time.Time, chosen string) ([][]float32, error) {
	remote, ticket, err := f.readable(reply, part)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	peer := reply.Readable.EngineID
	leave, err := f.peers.Meet(ctx, peer, reply.Readable.Metadata)
	if err != nil {
		return nil, err
	}
	defer leave()
	piece, err := f.p.arena.take(ctx, int(remote.Len))
	if err != nil {
		return nil, err
	}
	defer piece.put() // nothing of the transfer is under way then
	notice, err := protocol.Marshal(protocol.PrefillNotice{RequestID: m.of.Request, Ticket: reply.Readable.Key, Phase: protocol.PrefillRead, Worker: f.p.cfg.Worker, Bytes: int64(remote.Len), Transport: f.p.cfg.KV.TransportTo(peer)})
	if err != nil {
		return nil, err
	}
	x, err := f.p.cfg.KV.Agent().NewTransfer(nixl.Read, []nixl.Desc{piece.desc()}, []nixl.Desc{remote}, peer, nixl.TransferOpts{
		Ticket: ticket, Deadline: deadline, Notify: notice, HasNotify: true,
	})
	if err != nil {
		return nil, err
	}
	x.Post()
	pointPosted.Hit()
	select {
	case <-x.Done():
	case <-ctx.Done():
		x.Release() // asks for the end, which is waited for: the memory is still written
		<-x.Done()
		return nil, context.Cause(ctx)
	}
	err = x.Err()
	x.Release()
	if err != nil {
		return nil, fmt.Errorf("read the embeddings of %s: %w", reply.Worker, err)
	}
	pointArrived.Hit()
	rows := rowsOf(piece.bytes(), part.Rows, f.p.cfg.Width)
	took := time.Since(begin)
	f.meter.EmbeddingsRead(f.p.cfg.KV.TransportTo(peer), int64(remote.Len), took)
	m.note(func(e *protocol.Encoded) {
		e.By, e.Chosen = append(e.By, reply.Worker), append(e.Chosen, chosen)
		e.Bytes += int64(remote.Len)
		e.MoveNS += int64(took)
		if reply.Cached {
			e.Cached++
		}
	})
	return rows, nil
}

// readable checks what an encode worker answers: exactly the embeddings that the prompt has
// room for, in the type that was agreed on. Nothing is guessed.
func (f *Finder) readable(r *protocol.EncodeReply, part *protocol.MediaPart) (remote nixl.Desc, ticket nixl.TicketID, err error) {
	bad := func(format string, args ...any) (nixl.Desc, nixl.TicketID, error) {
		return nixl.Desc{}, nixl.TicketID{}, fmt.Errorf("%w: %s answers with "+format, append([]any{ErrMismatch, r.Worker}, args...)...)
	}
	want := uint64(4 * part.Rows * f.p.cfg.Width)
	switch d := r.Readable.Descriptors; {
	case r.DType != protocol.DTypeFloat32:
		return bad("values of type %q, this worker reads %s", r.DType, protocol.DTypeFloat32)
	case len(r.Shape) != 2 || r.Shape[0] != part.Rows || r.Shape[1] != f.p.cfg.Width:
		return bad("a tensor of shape %v, the prompt has room for %v", r.Shape, []int{part.Rows, f.p.cfg.Width})
	case r.Readable.Operation != protocol.ReadOperation:
		return bad("memory for operation %d, not to be read", r.Readable.Operation)
	case len(d) != 1 || d[0].Device != "cpu" || d[0].Size != want:
		return bad("memory %+v, expected %d bytes", d, want)
	}
	if ticket, err = nixl.ParseTicketID(r.Readable.Key); err != nil {
		return bad("no ticket: %s", err)
	}
	return nixl.Desc{Addr: r.Readable.Descriptors[0].Addr, Len: want}, ticket, nil
}

// rowsOf copies embeddings out of memory for transfers.
func rowsOf(b []byte, n, width int) [][]float32 {
	values := make([]float32, n*width)
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	rows := make([][]float32, n)
	for i := range rows {
		rows[i] = values[i*width:][:width:width]
	}
	return rows
}
