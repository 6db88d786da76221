package trtllm

import (
	"bytes"
	"context"
	"io"

	"github.com/dynctl/dynctl/internal/external/wire"
)

// DrainEvents implements external.EventQueue. The server forgets what it has given: nobody else
// may ask.
func (e *Engine) DrainEvents(ctx context.Context) (io.ReadCloser, error) {
	b, err := e.client.Compute(ctx, "/kv_cache_events", nil, []byte("{}"))
	if err != nil {
		return nil, wire.Remote(ctx, err)
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}
