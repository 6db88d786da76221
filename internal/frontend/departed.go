package frontend

import (
	"context"
	"time"

	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime"
)

// departedWait bounds how long one query waits until discovery reports the departure. The
// worker may ask again.
const departedWait = time.Second

// sendDeparted answers a leaving worker once the frontend routes no more requests to it.
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
