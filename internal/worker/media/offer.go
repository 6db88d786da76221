package media

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/protocol"
)

// offers are embeddings that a peer may read, by ticket.
type offers struct {
	mu       sync.Mutex
	byTicket map[string]chan string // gets the transport, as the peer told, when it has read
}

func (o *offers) add(ticket string) <-chan string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byTicket == nil {
		o.byTicket = map[string]chan string{}
	}
	read := make(chan string, 1)
	o.byTicket[ticket] = read
	return read
}

func (o *offers) remove(ticket string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.byTicket, ticket)
}

// Noticed takes in a notice of a peer: that it has read what was offered to it.
func (p *Plane) Noticed(n protocol.PrefillNotice) {
	if n.Phase != protocol.PrefillRead {
		return
	}
	p.offers.mu.Lock()
	defer p.offers.mu.Unlock()
	if read := p.offers.byTicket[n.Ticket]; read != nil {
		delete(p.offers.byTicket, n.Ticket)
		read <- n.Transport
	}
}

// Offer lets the peer that asked read embeddings. It completes reply with where they are,
// sends it, and returns when nobody reads any more: the peer told so, ctx ended, or ending
// was closed. read says that the peer has read them, and transport how, for metrics.
func (p *Plane) Offer(ctx context.Context, req *protocol.EncodeRequest, rows [][]float32, reply protocol.EncodeReply, send func(any) error, ending <-chan struct{}) (transport string, read bool, err error) {
	defer func() {
		if read {
			p.read.Add(1)
		} else {
			p.left.Add(1)
		}
	}()
	if p.arena == nil {
		return "", false, ErrNoEncoder
	}
	width := p.cfg.Width
	piece, err := p.arena.take(ctx, 4*width*len(rows))
	if err != nil {
		return "", false, err
	}
	piece.fill(rows)
	desc := piece.desc()
	ticket, err := p.cfg.KV.Agent().OpenTicket(nixl.TicketSpec{Access: nixl.Read, Descs: []nixl.Desc{desc}, Deadline: req.Deadline, Tag: req.RequestID})
	if err != nil {
		piece.put()
		return "", false, fmt.Errorf("open ticket: %w", err)
	}
	pointOffered.Hit()
	defer p.letGo(req, ticket, piece, ending)
	done := p.offers.add(ticket.String())
	defer p.offers.remove(ticket.String())
	reply.Shape, reply.DType = []int{len(rows), width}, protocol.DTypeFloat32
	reply.Readable = protocol.Readable{
		Descriptors: []protocol.MemoryDescriptor{{Device: "cpu", Addr: desc.Addr, Size: desc.Len}},
		EngineID:    p.cfg.KV.Name(), Metadata: p.cfg.KV.Agent().Metadata(), Key: ticket.String(), Operation: protocol.ReadOperation,
	}
	if err := send(reply); err != nil {
		return "", false, err
	}
	pointOfferTold.Hit()
	late := time.NewTimer(time.Until(req.Deadline))
	defer late.Stop()
	select {
	case told := <-done:
		pointOfferRead.Hit()
		return p.cfg.KV.Transport(told), true, nil
	case <-late.C:
		return "", false, fmt.Errorf("%w: %s has not read the embeddings by the deadline", context.DeadlineExceeded, req.Worker)
	case <-ending:
	case <-ctx.Done():
		// The reader has let go of the call. Its notice comes another way, perhaps later.
		grace := time.NewTimer(noticeGrace)
		defer grace.Stop()
		select {
		case told := <-done:
			pointOfferRead.Hit()
			return p.cfg.KV.Transport(told), true, nil
		case <-grace.C:
		case <-ending:
		}
	}
	return "", false, nil
}

// noticeGrace bounds the wait for the notice of a reader that has gone.
const noticeGrace = 2 * time.Second

// letGo ends the ticket of an offer and gives its memory back. A reader that does not end,
// because its process stands still, keeps it.
func (p *Plane) letGo(req *protocol.EncodeRequest, ticket nixl.TicketID, piece *piece, ending <-chan struct{}) {
	for told := false; ; told = true {
		err := p.cfg.KV.Revoke(ticket)
		if err == nil {
			piece.put()
			return
		}
		if !told {
			p.cfg.Log.Error("embeddings are kept: their reader does not end", "request", req.RequestID, "reader", req.Worker, "error", err)
		}
		select {
		case <-ending:
			p.cfg.Log.Warn("worker stops: embeddings freed, although a worker may still be reading them", "request", req.RequestID, "error", err)
			piece.put()
			return
		default:
		}
	}
}
