package requestplane_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// lively finds dead peers fast.
var lively = requestplane.Liveness{KeepAlive: 100 * time.Millisecond, PeerTimeout: 400 * time.Millisecond}

// hold is a handler that sends "running" and then waits for its end.
type hold struct{ causes chan error }

func newHold() *hold { return &hold{make(chan error, 1000)} }

func (h *hold) handle(ctx context.Context, _ *requestplane.Request, send func(any) error) error {
	if err := send("running"); err != nil {
		return err
	}
	<-ctx.Done()
	h.causes <- context.Cause(ctx)
	return context.Cause(ctx)
}

func (h *hold) cause(t *testing.T) error {
	t.Helper()
	select {
	case err := <-h.causes:
		return err
	case <-time.After(patience.Soon):
		t.Fatalf("handler not told to stop within %s", patience.Soon)
		return nil
	}
}

func echo(_ context.Context, req *requestplane.Request, send func(any) error) error {
	return send(requestplane.Raw(req.Body))
}

func handle(t *testing.T, s requestplane.Server, path string, h requestplane.Handler) {
	t.Helper()
	if _, err := s.Handle(path, h); err != nil {
		t.Fatal(err)
	}
}

// start calls and waits for the first item.
func start(t *testing.T, c requestplane.Client, addr string) requestplane.Stream {
	t.Helper()
	st, err := c.Call(t.Context(), addr, "r", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	if err := st.Recv(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return st
}

// ask makes one whole call.
func ask(ctx context.Context, c requestplane.Client, addr, text string) error {
	st, err := c.Call(ctx, addr, "r", nil, text)
	if err != nil {
		return err
	}
	defer st.Close()
	var got string
	if err := st.Recv(ctx, &got); err != nil {
		return err
	}
	if got != text {
		return fmt.Errorf("got %d bytes, want %d", len(got), len(text))
	}
	if err := st.Recv(ctx, &got); err != io.EOF {
		return fmt.Errorf("end = %w", err)
	}
	return nil
}

func silentListener(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns []net.Conn
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			conns = append(conns, conn)
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		<-done
		for _, c := range conns {
			c.Close()
		}
	})
	return ln
}

func TestTCPPortInUse(t *testing.T) {
	s := listen(t, requestplane.ServerConfig{})
	if other, err := requestplane.ListenTCP(requestplane.ServerConfig{Addr: s.Addr(), Key: clusterKey}); err == nil {
		other.Close()
		t.Error("two servers on one port")
	}
}
