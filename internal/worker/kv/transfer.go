package kv

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/nixl"
)

// Peer is the other side of a transfer.
type Peer struct {
	Agent, Worker string // NIXL agent, and name for people
	Ticket        nixl.TicketID
	Deadline      time.Time
}

// Transfer moves blocks between the pool of this worker and that of another one.
type Transfer struct{ t *nixl.Transfer }

// Prepare makes a transfer of blocks, selected by their ids in both pools. The other pool
// is looked up for each transfer: its metadata may have been loaded again.
func (p *Plane) Prepare(op nixl.Op, mine []int32, peer Peer, theirs []int32) (*Transfer, error) {
	other, err := remotePool(p.agent, peer.Agent, p.cfg.Shape)
	if err != nil {
		return nil, err
	}
	here, there, err := p.pool.pair(mine, other, theirs)
	if err != nil {
		return nil, err
	}
	remote, err := p.agent.PrepareRemote(peer.Agent, there.runs...)
	if err != nil {
		return nil, err
	}
	local, err := p.agent.PrepareLocal(here.runs...)
	if err != nil {
		return nil, err
	}
	t, err := p.agent.MakeTransfer(op, local, here.index, remote, there.index, nixl.TransferOpts{Ticket: peer.Ticket, Deadline: peer.Deadline})
	if err != nil {
		return nil, err
	}
	return &Transfer{t}, nil
}

// Post starts the transfer. The caller must call Wait.
func (x *Transfer) Post() { x.t.Post() }

// Wait waits until the transfer has ended, and asks for its end when ctx ends. When it
// returns, nothing of the transfer is under way.
func (x *Transfer) Wait(ctx context.Context) error {
	select {
	case <-x.t.Done():
	case <-ctx.Done():
		// Ask for the end, then wait for it: the blocks are still being accessed.
		x.t.Release()
		<-x.t.Done()
		return context.Cause(ctx)
	}
	err := x.t.Err()
	x.t.Release()
	return err
}

// unknownTransport is counted where no path to a peer is known.
const unknownTransport = "unknown"

// TransportTo is the transport by which this worker reaches an agent.
func (p *Plane) TransportTo(agent string) string {
	return cmp.Or(p.agent.TransportTo(agent), unknownTransport)
}

// Transport returns the name of a transport that a peer has told, for metrics; unknown for
// one that this worker does not have.
func (p *Plane) Transport(told string) string {
	if slices.ContainsFunc(p.cfg.NIXL.Transports, func(t nixl.Transport) bool { return t.Name() == told }) {
		return told
	}
	return unknownTransport
}
