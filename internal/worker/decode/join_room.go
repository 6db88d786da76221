package decode

import (
	"context"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
)

// joinRoom hands the reservation to a prefill that runs already.
func (f *filling) joinRoom(b *protocol.BootstrapInfo) asker {
	return func(ctx context.Context, req protocol.RemotePrefillRequest, _ *waiter) (n protocol.PrefillNotice, err error) {
		inst := cluster.Instance{InstanceID: b.ID, Worker: b.Worker, Transport: cluster.TransportTo(b.Address)}
		stream, err := f.w.prefills.Call(ctx, inst, req.RequestID, nil, protocol.JoinRoom{Room: b.Room, Request: req})
		if err != nil {
			return n, lostOr(err)
		}
		defer stream.Close()
		f.move.Active(b.Worker)
		if err := stream.Recv(ctx, &n); err != nil {
			return n, lostOr(err)
		}
		return n, checkNotice(n, req)
	}
}
