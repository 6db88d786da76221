package kv

import (
	"context"

	"github.com/dynctl/dynctl/internal/protocol"
)

// Notify sends a notice about the KV of a prompt to a peer.
func (p *Plane) Notify(ctx context.Context, agent string, n protocol.PrefillNotice) error {
	msg, err := protocol.Marshal(n)
	if err != nil {
		return err
	}
	return p.agent.Notify(ctx, agent, msg)
}

// Listener hears what peers tell.
type Listener interface {
	// Noticed takes in a notice about the KV of a prompt.
	Noticed(agent string, n protocol.PrefillNotice)
	// PeerLost takes in that the connection of a peer to this worker is broken.
	PeerLost(agent string)
}

// Listen hands notices and lost peers to a listener until ctx ends. One listener at a
// time may listen.
func (p *Plane) Listen(ctx context.Context, l Listener) {
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-p.agent.Notifications():
			var n protocol.PrefillNotice
			if err := protocol.Unmarshal(m.Msg, &n); err != nil {
				p.cfg.Log.Warn("unreadable NIXL notification", "from", m.From, "error", err)
				continue
			}
			l.Noticed(m.From, n)
		case d := <-p.agent.PeerDowns():
			if d.Inbound {
				l.PeerLost(d.Peer)
			}
		}
	}
}
