package frontend

import (
	"context"
	"time"

	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime"
)

// departedWait is how long one question may wait for discovery to bring the news. Who
// asks may ask again.
const departedWait = time.Second

// sendDeparted answers a worker that leaves as soon as no request is routed to it.
func (f *Frontend) sendDeparted(ctx context.Context, r *requestplane.Request, send func(any) error) error {
	var req protocol.DepartedRequest
	if err := r.Decode(&req); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, departedWait)
	defer cancel()
	for _, c := range []*runtime.Client{f.workers, f.prefills} {
		if err := c.WaitGone(ctx, req.InstanceID); err != nil {
			return &requestplane.RemoteError{Kind: requestplane.KindUnavailable, Message: err.Error()}
		}
	}
	return send(protocol.Departed(req))
}
