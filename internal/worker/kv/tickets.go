package kv

import (
	"context"
	"time"

	"github.com/dynctl/dynctl/internal/nixl"
)

// OpenTicket lets peers that know the ticket access blocks until it is revoked, at the
// latest until the deadline. tag is for logs, such as the id of a request.
func (p *Plane) OpenTicket(access nixl.Op, blocks []int32, deadline time.Time, tag string) (nixl.TicketID, error) {
	return p.agent.OpenTicket(nixl.TicketSpec{Access: access, Descs: p.Descs(blocks), Deadline: deadline, Tag: tag})
}

// Revoke ends a ticket. When it returns nil, nobody accesses blocks under it any more. It
// takes no context: a ticket is revoked also when its request or the worker is ending.
func (p *Plane) Revoke(ticket nixl.TicketID) error {
	ctx, cancel := context.WithTimeout(context.Background(), p.cfg.Proof)
	defer cancel()
	return p.agent.RevokeTicket(ctx, ticket)
}

// LiftWhenSafe waits until the writer of quarantined blocks is stopped, and then calls
// lift. When ending is closed first, the blocks stay in quarantine until the pool is freed.
func (p *Plane) LiftWhenSafe(request string, ticket nixl.TicketID, lift func(), ending <-chan struct{}) {
	for p.Revoke(ticket) != nil {
		select {
		case <-ending:
			p.cfg.Log.Warn("quarantine kept: the worker stops before the writer did", "request", request)
			return
		default:
		}
	}
	p.cfg.Log.Info("quarantine lifted", "request", request)
	lift()
}
