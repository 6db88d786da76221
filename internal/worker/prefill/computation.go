package prefill

import (
	"context"
	"time"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/worker/kv"
	"github.com/dynctl/dynctl/internal/worker/media"
)

// computation is a prefill in a goroutine of its own.
type computation struct {
	stop func(error)
	done chan struct{}

	// Set when done is closed.
	held *engine.Held
	err  error
	took time.Duration
}

// begin starts a prefill. It does not end with ctx: whoever writes its blocks must stop
// first, or would send what somebody else writes into them. failed hears why it failed.
func (w *Role) begin(ctx context.Context, r engine.PrefillRequest, failed func(error)) *computation {
	ctx, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	c := &computation{stop: stop, done: make(chan struct{})}
	begin := time.Now()
	go func() {
		defer close(c.done)
		c.held, c.err = w.Engine.Prefill(ctx, r)
		c.took = time.Since(begin)
		if c.err != nil {
			failed(c.err)
			return
		}
		r.Progress(c.held.Tokens, c.held.Blocks)
	}()
	return c
}

// write writes the blocks of a prompt that is being computed into the decode worker's
// memory, and completes the notice of that. When it returns no transfer is under way.
func (w *Role) write(ctx context.Context, req protocol.RemotePrefillRequest, ticket nixl.TicketID, wr *kv.Writer, c *computation, n *protocol.PrefillNotice) error {
	wrote, err := wr.Run(ctx, req, ticket)
	if err != nil {
		return err
	}
	// All is written, so all is computed.
	held, err := c.wait(ctx)
	if err != nil {
		return err
	}
	n.Phase, n.Tokens, n.Cached = protocol.PrefillDone, held.Tokens, held.Cached
	n.Bytes, n.WriteNS, n.ComputeNS, n.ExposedNS = wrote.Bytes, int64(wrote.Took), int64(c.took), int64(wrote.Exposed)
	n.Transport = w.KV.TransportTo(req.EngineID)
	w.KV.Moved(wrote.Bytes, wrote.Took)
	w.Meter.Transferred(metrics.DirectionOut, n.Transport, wrote.Bytes, wrote.Took)
	return nil
}

func (c *computation) wait(ctx context.Context) (*engine.Held, error) {
	select {
	case <-c.done:
		return c.held, c.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// end stops the computation if it still runs, and gives its blocks back. Nobody may
// write them to others any more.
func (c *computation) end() {
	c.stop(nil)
	<-c.done
	if c.held != nil {
		c.held.Release()
	}
}

// timing tells a frontend what a prefill found in the cache and how long it took.
func (w *Role) timing(held *engine.Held, took time.Duration, images *media.Images) *protocol.Timing {
	return &protocol.Timing{Worker: w.Worker, Prefill: w.Worker, PrefillNS: int64(took), CachedTokens: held.Cached, Encoded: images.About()}
}
