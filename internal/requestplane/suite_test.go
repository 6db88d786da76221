package requestplane_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"go.uber.org/goleak"

	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/natspipe"
	"github.com/dynctl/dynctl/internal/natspipe/natspipetest"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/requestplane/requestplanetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) {
	requestplanetest.Run(t, func(t *testing.T, limits requestplane.Limits) (requestplane.Server, func() requestplane.Client) {
		checkLeaks(t)
		m := requestplane.NewMemory()
		s := m.NewServer(limits, nil)
		t.Cleanup(func() { mustClose(t, s) })
		return s, func() requestplane.Client {
			c := m.NewClient()
			t.Cleanup(func() { mustClose(t, c) })
			return c
		}
	})
}

func TestTCP(t *testing.T) {
	requestplanetest.Run(t, func(t *testing.T, limits requestplane.Limits) (requestplane.Server, func() requestplane.Client) {
		checkLeaks(t)
		s := listen(t, requestplane.ServerConfig{Limits: limits})
		return s, func() requestplane.Client { return newClient(t, requestplane.ClientConfig{}) }
	})
}

func TestHTTP(t *testing.T) {
	requestplanetest.Run(t, func(t *testing.T, limits requestplane.Limits) (requestplane.Server, func() requestplane.Client) {
		checkLeaks(t)
		s := listenHTTP(t, requestplane.ServerConfig{Limits: limits})
		return s, func() requestplane.Client { return newClient(t, requestplane.ClientConfig{}) }
	})
}

func TestHTTPOverTLS(t *testing.T) {
	secure := ephemeral(t)
	requestplanetest.Run(t, func(t *testing.T, limits requestplane.Limits) (requestplane.Server, func() requestplane.Client) {
		checkLeaks(t)
		s := listenHTTP(t, requestplane.ServerConfig{Limits: limits, TLS: secure})
		return s, func() requestplane.Client { return newClient(t, requestplane.ClientConfig{}) }
	})
}

func TestNATS(t *testing.T) { testNATS(t, nil) }

func TestNATSOverTLS(t *testing.T) { testNATS(t, ephemeral(t)) }

func testNATS(t *testing.T, secure *tls.Config) {
	servers := natspipetest.Start(t, server.Options{})
	requestplanetest.Run(t, func(t *testing.T, limits requestplane.Limits) (requestplane.Server, func() requestplane.Client) {
		checkLeaks(t)
		s := listenNATS(t, servers, requestplane.ServerConfig{Limits: limits, TLS: secure})
		return s, func() requestplane.Client { return newNATSClient(t, servers, requestplane.ClientConfig{}) }
	})
}

// Requests to servers of the same process, which skip the sockets, and requests
// past them keep the same promises.
func TestNear(t *testing.T) {
	requestplanetest.Run(t, func(t *testing.T, limits requestplane.Limits) (requestplane.Server, func() requestplane.Client) {
		checkLeaks(t)
		m := requestplane.NewMemory()
		net := listen(t, requestplane.ServerConfig{Limits: limits})
		s := m.Beside(net, net.Addr(), limits, nil)
		t.Cleanup(func() { mustClose(t, s) })
		return s, func() requestplane.Client {
			c := m.Over(requestplane.NewClient(requestplane.ClientConfig{Key: clusterKey}))
			t.Cleanup(func() { mustClose(t, c) })
			return c
		}
	})
}

// A near client does not need the network at all for servers of its process.
func TestNearSkipsTheNetwork(t *testing.T) {
	m := requestplane.NewMemory()
	s := m.Beside(listen(t, requestplane.ServerConfig{}), "near.example:1", requestplane.Limits{}, nil)
	defer mustClose(t, s)
	if _, err := s.Handle("id/echo", func(_ context.Context, r *requestplane.Request, send func(any) error) error {
		return send(requestplane.Raw(r.Body))
	}); err != nil {
		t.Fatal(err)
	}
	c := m.Over(requestplane.NewClient(requestplane.ClientConfig{Key: clusterKey}))
	defer mustClose(t, c)
	st, err := c.Call(t.Context(), "near.example:1/id/echo", "a", nil, "hello")
	if err != nil {
		t.Fatal(err)
	}
	var got string
	if err := st.Recv(t.Context(), &got); err != nil || got != "hello" {
		t.Errorf("got %q %v", got, err)
	}
	if _, err := c.Call(t.Context(), "127.0.0.1:1/id/echo", "b", nil, "x"); !errors.Is(err, requestplane.ErrCannotConnect) {
		t.Errorf("a server elsewhere: %v, want ErrCannotConnect", err)
	}
}

// checkLeaks fails the test if goroutines that it started are left at its end.
func checkLeaks(t *testing.T) {
	opt := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		if !t.Failed() {
			goleak.VerifyNone(t, opt)
		}
	})
}

func mustClose(t testing.TB, c interface{ Close() error }) {
	if err := c.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// clusterKey is that of all servers and clients of these tests, unless they say otherwise.
var clusterKey = handshake.RandomKey()

func listen(t testing.TB, cfg requestplane.ServerConfig) *requestplane.MuxServer {
	t.Helper()
	cfg.Key = cmp.Or(cfg.Key, clusterKey)
	s, err := requestplane.ListenTCP(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func listenHTTP(t testing.TB, cfg requestplane.ServerConfig) *requestplane.HTTPServer {
	t.Helper()
	cfg.Key = cmp.Or(cfg.Key, clusterKey)
	s, err := requestplane.ListenHTTP(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mustClose(t, s) })
	return s
}

// listenNATS starts a server with a connection of its own.
func listenNATS(t testing.TB, servers *natspipetest.Server, cfg requestplane.ServerConfig) *requestplane.MuxServer {
	t.Helper()
	cfg.Key, cfg.Pipes = cmp.Or(cfg.Key, clusterKey), newHub(t, servers, cfg.Liveness)
	s, err := requestplane.ListenNATS(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mustClose(t, s) })
	return s
}

// newNATSClient returns a client with a connection of its own.
func newNATSClient(t testing.TB, servers *natspipetest.Server, cfg requestplane.ClientConfig) *requestplane.NetClient {
	hub := newHub(t, servers, cfg.Liveness)
	cfg.Pipes = func() (*natspipe.Hub, error) { return hub, nil }
	return newClient(t, cfg)
}

func newHub(t testing.TB, servers *natspipetest.Server, live requestplane.Liveness) *natspipe.Hub {
	bus := natspipetest.Bus(t, servers.URL())
	hub := natspipe.New(bus, natspipe.Config{Beat: live.KeepAlive / 3, Missed: 1000})
	t.Cleanup(func() { mustClose(t, hub) })
	return hub
}

func newClient(t testing.TB, cfg requestplane.ClientConfig) *requestplane.NetClient {
	cfg.Key = cmp.Or(cfg.Key, clusterKey)
	c := requestplane.NewClient(cfg)
	t.Cleanup(func() { c.Close() })
	return c
}
