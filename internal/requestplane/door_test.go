package requestplane_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/handshake/handshaketest"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/requestplane"
)

func TestDoor(t *testing.T) {
	checkLeaks(t)
	handshaketest.Door{
		Protocol: spoken,
		Serve: func(t *testing.T, key handshake.Key, timeout time.Duration) handshaketest.Listener {
			s := listen(t, requestplane.ServerConfig{Key: key, HandshakeTimeout: timeout})
			var strangers atomic.Bool
			strangers.Store(true)
			var reached atomic.Int64
			remove, err := s.Handle("1/echo", func(ctx context.Context, r *requestplane.Request, send func(any) error) error {
				if strangers.Load() {
					reached.Add(1)
				}
				return echo(ctx, r, send)
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = remove(context.Background()) })
			return handshaketest.Listener{
				Dial: func() (net.Conn, error) { return net.Dial("tcp", s.Addr()) },
				Use: func() error {
					strangers.Store(false)
					return ask(t.Context(), newClient(t, requestplane.ClientConfig{Key: key}), s.Addr()+"/1/echo", "fine")
				},
				Reached: func() int { return int(reached.Load()) },
			}
		},
		Call: func(t *testing.T, key handshake.Key, accept func(net.Conn)) error {
			c := newClient(t, requestplane.ClientConfig{Key: key})
			_, err := c.Call(t.Context(), serveOnce(t, accept)+"/1/echo", "r", nil, nil)
			return err
		},
		Old:       "dynrp\x00\x01\x00",
		OldAnswer: "dynrp\x00\x02\x01",
	}.Run(t)
}

// Without a token, a connection to a server of the http plane has the same door.
func TestHTTPDoor(t *testing.T) {
	checkLeaks(t)
	handshaketest.Door{
		Protocol: handshake.Protocol{Name: "dynhp\x00", Version: 1},
		Serve: func(t *testing.T, key handshake.Key, timeout time.Duration) handshaketest.Listener {
			s := listenHTTP(t, requestplane.ServerConfig{Key: key, HandshakeTimeout: timeout})
			var own atomic.Bool
			var reached atomic.Int64
			remove, err := s.Handle("1/echo", func(ctx context.Context, r *requestplane.Request, send func(any) error) error {
				if !own.Load() {
					reached.Add(1)
				}
				return echo(ctx, r, send)
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = remove(context.Background()) })
			return handshaketest.Listener{
				Dial: func() (net.Conn, error) { return net.Dial("tcp", hostport(s.Addr())) },
				Use: func() error {
					own.Store(true)
					return ask(t.Context(), newClient(t, requestplane.ClientConfig{Key: key}), s.Addr()+"/1/echo", "fine")
				},
				Reached: func() int { return int(reached.Load()) },
			}
		},
		Call: func(t *testing.T, key handshake.Key, accept func(net.Conn)) error {
			c := newClient(t, requestplane.ClientConfig{Key: key})
			_, err := c.Call(t.Context(), "http://"+serveOnce(t, accept)+"/v1/rpc/1/echo", "r", nil, nil)
			return err
		},
		Old:       "dynhp\x00\x00\x00",
		OldAnswer: "dynhp\x00\x01\x01",
	}.Run(t)
}

func TestTCPNoKey(t *testing.T) {
	checkLeaks(t)
	if s, err := requestplane.ListenTCP(requestplane.ServerConfig{}); !errors.Is(err, handshake.ErrNoKey) {
		s.Close()
		t.Errorf("a server without a key: %v", err)
	}
	c := requestplane.NewClient(requestplane.ClientConfig{})
	defer c.Close()
	if _, err := c.Call(t.Context(), "127.0.0.1:1/x", "r", nil, nil); !errors.Is(err, handshake.ErrNoKey) {
		t.Errorf("a client without a key: %v", err)
	}
	why := errors.New("get it there")
	d := requestplane.NewClient(requestplane.ClientConfig{NoKey: why})
	defer d.Close()
	if _, err := d.Call(t.Context(), "127.0.0.1:1/x", "r", nil, nil); !errors.Is(err, why) || !requestplane.NotStarted(err) {
		t.Errorf("a client without a key: %v", err)
	}
}

// A server with another secret is asked once in a while, not for each call, and the log
// says why nothing works.
func TestTCPAnotherSecret(t *testing.T) {
	checkLeaks(t)
	var serverLog, clientLog patience.Buffer
	s := listen(t, requestplane.ServerConfig{Key: handshake.RandomKey(), Log: slog.New(slog.NewTextHandler(&serverLog, nil))})
	handle(t, s, "1/echo", echo)
	p := newProxy(t, s.Addr())
	c := newClient(t, requestplane.ClientConfig{Log: slog.New(slog.NewTextHandler(&clientLog, nil))})
	for range 20 {
		err := ask(t.Context(), c, p.addr()+"/1/echo", "x")
		if !errors.Is(err, handshake.ErrSecret) || !requestplane.NotStarted(err) {
			t.Fatalf("call = %v", err)
		}
	}
	if n := p.Accepted(); n > 2 { // two if the test was stopped for seconds
		t.Errorf("%d connections for 20 calls", n)
	}
	patience.Until(t, "both sides have said why", func() bool {
		return strings.Contains(serverLog.String(), "secret") && strings.Contains(clientLog.String(), "incompatible node")
	})
}
