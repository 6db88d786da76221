package requestplane_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// network is a plane whose servers are reached over TCP connections.
type network struct {
	listen func(requestplane.ServerConfig) (requestplane.Server, error)
	at     func(hostport string) string // the address of a server there
}

var networks = map[string]network{
	"tcp": {
		func(cfg requestplane.ServerConfig) (requestplane.Server, error) { return requestplane.ListenTCP(cfg) },
		func(hostport string) string { return hostport },
	},
	"http": {
		func(cfg requestplane.ServerConfig) (requestplane.Server, error) { return requestplane.ListenHTTP(cfg) },
		func(hostport string) string { return "http://" + hostport + "/v1/rpc" },
	},
}

// eachNetwork runs a test of what all networks promise.
func eachNetwork(t *testing.T, f func(*testing.T, network)) {
	for name, n := range networks {
		t.Run(name, func(t *testing.T) { f(t, n) })
	}
}

func (n network) serve(t *testing.T, cfg requestplane.ServerConfig) requestplane.Server {
	t.Helper()
	cfg.Key = cmp.Or(cfg.Key, clusterKey)
	s, err := n.listen(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mustClose(t, s) })
	return s
}

func (n network) proxy(t *testing.T, s requestplane.Server) *proxy {
	t.Helper()
	p := newProxy(t, hostport(s.Addr()))
	p.at = n.at
	return p
}

// hostport returns where the server with an address listens.
func hostport(addr string) string {
	host, _, _ := strings.Cut(strings.TrimPrefix(addr, "http://"), "/")
	return host
}

// Many callers at once share one dial and one connection.
func TestNetworkSharesOneConnection(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n network) {
		checkLeaks(t)
		s := n.serve(t, requestplane.ServerConfig{})
		handle(t, s, "1/echo", echo)
		p := n.proxy(t, s)
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
		if n := p.Accepted(); n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
	})
}

// Frames may arrive in any pieces.
func TestNetworkSmallPieces(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n network) {
		checkLeaks(t)
		s := n.serve(t, requestplane.ServerConfig{})
		handle(t, s, "1/echo", echo)
		p := n.proxy(t, s)
		p.Chunk(1)
		c := newClient(t, requestplane.ClientConfig{})
		for _, size := range []int{0, 1, 100, 10_000} {
			if err := ask(t.Context(), c, p.addr()+"/1/echo", strings.Repeat("x", size)); err != nil {
				t.Errorf("size %d: %v", size, err)
			}
		}
	})
}

func TestNetworkConnectionCut(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n network) {
		checkLeaks(t)
		s := n.serve(t, requestplane.ServerConfig{})
		h := newHold()
		handle(t, s, "1/hold", h.handle)
		handle(t, s, "1/echo", echo)
		p := n.proxy(t, s)
		c := newClient(t, requestplane.ClientConfig{})
		for range 5 {
			one, two := start(t, c, p.addr()+"/1/hold"), start(t, c, p.addr()+"/1/hold")
			p.Reset()
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
	})
}

// Both ends of a connection that carries nothing any more notice it.
func TestNetworkHalfOpen(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n network) {
		checkLeaks(t)
		s := n.serve(t, requestplane.ServerConfig{Liveness: lively})
		h := newHold()
		handle(t, s, "1/hold", h.handle)
		handle(t, s, "1/echo", echo)
		p := n.proxy(t, s)
		c := newClient(t, requestplane.ClientConfig{Liveness: lively})
		st := start(t, c, p.addr()+"/1/hold")
		p.Freeze()
		begin := time.Now()
		err := st.Recv(t.Context(), nil)
		if !errors.Is(err, requestplane.ErrIncomplete) || !strings.Contains(err.Error(), "does not answer") {
			t.Errorf("Recv = %v, want ErrIncomplete because the peer does not answer", err)
		}
		if err := h.cause(t); !errors.Is(err, requestplane.ErrClientGone) {
			t.Errorf("handler's cause = %v, want ErrClientGone", err)
		}
		t.Logf("noticed after %s", time.Since(begin))
		p.Heal()
		patience.Until(t, "calls work again", func() bool { return ask(t.Context(), c, p.addr()+"/1/echo", "again") == nil })
	})
}

// Requests to a peer that has stopped reading end with their contexts, even when
// every buffer on the way is full.
func TestNetworkFrozenPeer(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n network) {
		checkLeaks(t)
		s := n.serve(t, requestplane.ServerConfig{})
		handle(t, s, "1/echo", echo)
		p := n.proxy(t, s)
		c := newClient(t, requestplane.ClientConfig{Liveness: requestplane.Liveness{PeerTimeout: patience.Soon}})
		if err := ask(t.Context(), c, p.addr()+"/1/echo", "x"); err != nil {
			t.Fatal(err)
		}
		p.Freeze()
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
				if d := time.Since(begin); d > patience.Soon/3 {
					t.Errorf("call ended after %s", d)
				}
			})
		}
		wg.Wait()
	})
}

func TestNetworkServerRestart(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n network) {
		checkLeaks(t)
		c := newClient(t, requestplane.ClientConfig{})
		addr := "127.0.0.1:0"
		for i := range 5 {
			s, err := n.listen(requestplane.ServerConfig{Addr: addr, Key: clusterKey})
			if err != nil {
				t.Fatal(err)
			}
			addr = hostport(s.Addr())
			h := newHold()
			handle(t, s, "1/hold", h.handle)
			handle(t, s, "1/echo", echo)
			if err := ask(t.Context(), c, s.Addr()+"/1/echo", "hello"); err != nil {
				t.Fatalf("server %d: %v", i, err)
			}
			st := start(t, c, s.Addr()+"/1/hold")
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if err := st.Recv(t.Context(), nil); !errors.Is(err, requestplane.ErrIncomplete) {
				t.Errorf("Recv = %v, want ErrIncomplete", err)
			}
		}
	})
}

func TestNetworkIdleConnection(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n network) {
		checkLeaks(t)
		s := n.serve(t, requestplane.ServerConfig{})
		h := newHold()
		handle(t, s, "1/echo", echo)
		handle(t, s, "1/hold", h.handle)
		p := n.proxy(t, s)
		c := newClient(t, requestplane.ClientConfig{IdleTimeout: 50 * time.Millisecond})
		for want := 1; want <= 2; want++ {
			if err := ask(t.Context(), c, p.addr()+"/1/echo", "x"); err != nil {
				t.Fatal(err)
			}
			if n := p.Accepted(); n != want {
				t.Errorf("%d connections, want %d", n, want)
			}
			patience.Until(t, "the idle connection is closed", func() bool { return p.Open() == 0 })
		}
		st := start(t, c, p.addr()+"/1/hold") // a silent stream is not idle
		// A connection that was made later and is idle is closed meanwhile.
		other := n.proxy(t, s)
		if err := ask(t.Context(), c, other.addr()+"/1/echo", "x"); err != nil {
			t.Fatal(err)
		}
		patience.Until(t, "the other connection is closed", func() bool { return other.Accepted() == 1 && other.Open() == 0 })
		if p.Open() != 1 {
			t.Error("a connection in use was closed")
		}
		st.Close()
		patience.Until(t, "the idle connection is closed", func() bool { return p.Open() == 0 })
	})
}

// A server that accepts and says nothing.
func TestNetworkConnectTimeout(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n network) {
		checkLeaks(t)
		ln := silentListener(t)
		c := newClient(t, requestplane.ClientConfig{ConnectTimeout: 200 * time.Millisecond})
		addr := n.at(ln.Addr().String()) + "/1/echo"
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
	})
}

// A handler that does not return is reported, not waited for forever.
func TestNetworkStubbornHandler(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n network) {
		s, err := n.listen(requestplane.ServerConfig{Key: clusterKey, CloseGrace: 50 * time.Millisecond})
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
		patience.Until(t, "Close succeeds", func() bool { return s.Close() == nil })
	})
}
