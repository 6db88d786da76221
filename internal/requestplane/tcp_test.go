package requestplane_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

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
	case <-time.After(patience):
		t.Fatalf("handler not told to stop within %s", patience)
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

// Many callers at once share one dial and one connection.
func TestTCPSharesOneConnection(t *testing.T) {
	checkLeaks(t)
	s := listen(t, requestplane.ServerConfig{})
	handle(t, s, "1/echo", echo)
	p := newProxy(t, s.Addr())
	c := newClient(t, requestplane.ClientConfig{})
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			if err := ask(t.Context(), c, p.addr()+"/1/echo", fmt.Sprint(i)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := p.accepted.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// Frames may arrive in any pieces.
func TestTCPSmallPieces(t *testing.T) {
	checkLeaks(t)
	s := listen(t, requestplane.ServerConfig{})
	handle(t, s, "1/echo", echo)
	p := newProxy(t, s.Addr())
	p.chunk.Store(1)
	c := newClient(t, requestplane.ClientConfig{})
	for _, size := range []int{0, 1, 100, 10_000} {
		if err := ask(t.Context(), c, p.addr()+"/1/echo", strings.Repeat("x", size)); err != nil {
			t.Errorf("size %d: %v", size, err)
		}
	}
}

func TestTCPConnectionCut(t *testing.T) {
	checkLeaks(t)
	s := listen(t, requestplane.ServerConfig{})
	h := newHold()
	handle(t, s, "1/hold", h.handle)
	handle(t, s, "1/echo", echo)
	p := newProxy(t, s.Addr())
	c := newClient(t, requestplane.ClientConfig{})
	for range 5 {
		one, two := start(t, c, p.addr()+"/1/hold"), start(t, c, p.addr()+"/1/hold")
		p.cut()
		for _, st := range []requestplane.Stream{one, two} {
			if err := st.Recv(t.Context(), nil); !errors.Is(err, requestplane.ErrIncomplete) {
				t.Errorf("Recv = %v, want ErrIncomplete", err)
			}
			if err := h.cause(t); !errors.Is(err, requestplane.ErrClientGone) {
				t.Errorf("handler's cause = %v, want ErrClientGone", err)
			}
		}
		if err := ask(t.Context(), c, p.addr()+"/1/echo", "again"); err != nil {
			t.Errorf("call after the cut: %v", err)
		}
	}
}

// Both ends of a connection that carries nothing any more notice it.
func TestTCPHalfOpen(t *testing.T) {
	checkLeaks(t)
	s := listen(t, requestplane.ServerConfig{Liveness: lively})
	h := newHold()
	handle(t, s, "1/hold", h.handle)
	handle(t, s, "1/echo", echo)
	p := newProxy(t, s.Addr())
	c := newClient(t, requestplane.ClientConfig{Liveness: lively})
	st := start(t, c, p.addr()+"/1/hold")
	p.freeze()
	begin := time.Now()
	err := st.Recv(t.Context(), nil)
	if !errors.Is(err, requestplane.ErrIncomplete) || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("Recv = %v, want ErrIncomplete because the peer does not answer", err)
	}
	if err := h.cause(t); !errors.Is(err, requestplane.ErrClientGone) {
		t.Errorf("handler's cause = %v, want ErrClientGone", err)
	}
	t.Logf("noticed after %s", time.Since(begin))
	p.thaw()
	until(t, "calls work again", func() bool { return ask(t.Context(), c, p.addr()+"/1/echo", "again") == nil })
}

// Requests to a peer that has stopped reading end with their contexts, even when
// every buffer on the way is full.
func TestTCPFrozenPeer(t *testing.T) {
	checkLeaks(t)
	s := listen(t, requestplane.ServerConfig{})
	handle(t, s, "1/echo", echo)
	p := newProxy(t, s.Addr())
	c := newClient(t, requestplane.ClientConfig{Liveness: requestplane.Liveness{PeerTimeout: patience}})
	if err := ask(t.Context(), c, p.addr()+"/1/echo", "x"); err != nil {
		t.Fatal(err)
	}
	p.freeze()
	body := strings.Repeat("x", 200_000)
	var wg sync.WaitGroup
	for range 100 { // 20 MB are more than the sockets take
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			begin := time.Now()
			if err := ask(ctx, c, p.addr()+"/1/echo", body); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("call = %v, want DeadlineExceeded", err)
			}
			if d := time.Since(begin); d > patience/3 {
				t.Errorf("call ended after %s", d)
			}
		})
	}
	wg.Wait()
}

func TestTCPServerRestart(t *testing.T) {
	checkLeaks(t)
	c := newClient(t, requestplane.ClientConfig{})
	addr := "127.0.0.1:0"
	for i := range 5 {
		s, err := requestplane.ListenTCP(requestplane.ServerConfig{Addr: addr, Key: clusterKey})
		if err != nil {
			t.Fatal(err)
		}
		addr = s.Addr()
		h := newHold()
		handle(t, s, "1/hold", h.handle)
		handle(t, s, "1/echo", echo)
		if err := ask(t.Context(), c, addr+"/1/echo", "hello"); err != nil {
			t.Fatalf("server %d: %v", i, err)
		}
		st := start(t, c, addr+"/1/hold")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := st.Recv(t.Context(), nil); !errors.Is(err, requestplane.ErrIncomplete) {
			t.Errorf("Recv = %v, want ErrIncomplete", err)
		}
	}
}

func TestTCPIdleConnection(t *testing.T) {
	checkLeaks(t)
	s := listen(t, requestplane.ServerConfig{})
	h := newHold()
	handle(t, s, "1/echo", echo)
	handle(t, s, "1/hold", h.handle)
	p := newProxy(t, s.Addr())
	c := newClient(t, requestplane.ClientConfig{IdleTimeout: 50 * time.Millisecond})
	for want := int64(1); want <= 2; want++ {
		if err := ask(t.Context(), c, p.addr()+"/1/echo", "x"); err != nil {
			t.Fatal(err)
		}
		if n := p.accepted.Load(); n != want {
			t.Errorf("%d connections, want %d", n, want)
		}
		until(t, "the idle connection is closed", func() bool { return p.open() == 0 })
	}
	st := start(t, c, p.addr()+"/1/hold") // a silent stream is not idle
	// A connection that was made later and is idle is closed meanwhile.
	other := newProxy(t, s.Addr())
	if err := ask(t.Context(), c, other.addr()+"/1/echo", "x"); err != nil {
		t.Fatal(err)
	}
	until(t, "the other connection is closed", func() bool { return other.accepted.Load() == 1 && other.open() == 0 })
	if p.open() != 1 {
		t.Error("a connection in use was closed")
	}
	st.Close()
	until(t, "the idle connection is closed", func() bool { return p.open() == 0 })
}

// A server that accepts and says nothing.
func TestTCPConnectTimeout(t *testing.T) {
	checkLeaks(t)
	ln := silentListener(t)
	c := newClient(t, requestplane.ClientConfig{ConnectTimeout: 200 * time.Millisecond})
	addr := ln.Addr().String() + "/1/echo"
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Call(ctx, addr, "r", nil, nil); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, requestplane.ErrCannotConnect) {
		t.Errorf("Call = %v, want the caller's deadline", err)
	}
	// The dial that the first caller began serves the second one, too.
	if _, err := c.Call(t.Context(), addr, "r", nil, nil); !errors.Is(err, requestplane.ErrCannotConnect) {
		t.Errorf("Call = %v, want ErrCannotConnect", err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := c.Call(t.Context(), addr, "r", nil, nil)
		done <- err
	}()
	c.Close()
	if err := <-done; !errors.Is(err, requestplane.ErrClientClosed) && !errors.Is(err, requestplane.ErrCannotConnect) {
		t.Errorf("Call during Close = %v, want ErrClientClosed", err)
	}
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

// A handler that does not return is reported, not waited for forever.
func TestTCPStubbornHandler(t *testing.T) {
	s, err := requestplane.ListenTCP(requestplane.ServerConfig{Key: clusterKey, CloseGrace: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	handle(t, s, "1/stubborn", func(_ context.Context, _ *requestplane.Request, send func(any) error) error {
		send(1)
		<-release
		return nil
	})
	c := newClient(t, requestplane.ClientConfig{})
	start(t, c, s.Addr()+"/1/stubborn")
	if err := s.Close(); err == nil || !strings.Contains(err.Error(), "1 handlers") {
		t.Errorf("Close = %v, want an error that counts 1 handler", err)
	}
	close(release)
	until(t, "Close succeeds", func() bool { return s.Close() == nil })
}

func TestTCPPortInUse(t *testing.T) {
	s := listen(t, requestplane.ServerConfig{})
	if other, err := requestplane.ListenTCP(requestplane.ServerConfig{Addr: s.Addr(), Key: clusterKey}); err == nil {
		other.Close()
		t.Error("two servers on one port")
	}
}
