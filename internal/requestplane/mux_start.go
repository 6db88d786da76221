package requestplane

import (
	"context"
	"fmt"

	"github.com/hashicorp/yamux"
)

// opened is the result of opening a stream.
type opened struct {
	st  *yamux.Stream
	err error
}

// start opens a stream and sends the request. Both may block while the peer does not
// read, regardless of ctx, so they run on another goroutine.
func (s *session) start(ctx context.Context, c *clientConn, _ requestHeader, frame []byte) (Stream, error) {
	ready := make(chan opened, 1)
	if !c.spawn(func() { ready <- s.send(ctx, c, frame) }) {
		return nil, errNotOpened
	}
	select {
	case o := <-ready:
		if o.err != nil {
			return nil, o.err
		}
		return newMuxStream(ctx, c, o.st), nil
	case <-ctx.Done():
		// That goroutine sees it, too. A stream that was opened meanwhile must be closed.
		c.spawn(func() {
			if o := <-ready; o.st != nil {
				o.st.Close()
			}
		})
		return nil, context.Cause(ctx)
	}
}

func (s *session) send(ctx context.Context, c *clientConn, frame []byte) opened {
	if n := s.NumStreams() - c.inUse(); n > maxClosing {
		c.client.log.Warn("server does not close its side of streams: closing the connection", "addr", c.addr, "streams", n)
		s.Close()
	}
	st, err := s.OpenStream()
	if err != nil {
		return opened{nil, fmt.Errorf("%w: %w", errNotOpened, err)}
	}
	stop := context.AfterFunc(ctx, func() { st.SetWriteDeadline(interrupt) })
	_, err = st.Write(frame)
	if stop() && err == nil {
		return opened{st, nil}
	}
	st.Close()
	if ctx.Err() != nil {
		return opened{nil, context.Cause(ctx)}
	}
	return opened{nil, fmt.Errorf("%w: send request: %w", ErrDisconnected, c.failure(err))}
}
