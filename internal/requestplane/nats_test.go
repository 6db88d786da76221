package requestplane_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/natspipe"
	"github.com/dynctl/dynctl/internal/natspipe/natspipetest"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// The NATS server is restarted while streams run. No answer is cut off without an error, and
// none has a wrong item; calls afterwards work over new pipes.
func TestNATSServerRestart(t *testing.T) {
	checkLeaks(t)
	servers := natspipetest.Start(t, server.Options{})
	s := listenNATS(t, servers, requestplane.ServerConfig{})
	handle(t, s, "1/echo", echo)
	var running atomic.Int64
	handle(t, s, "1/count", func(ctx context.Context, _ *requestplane.Request, send func(any) error) error {
		running.Add(1)
		defer running.Add(-1)
		for i := range 500 {
			if err := send(i); err != nil {
				return err
			}
			select {
			case <-time.After(time.Millisecond): // so that the restart comes in between
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	})
	c := newNATSClient(t, servers, requestplane.ClientConfig{})
	var whole, broken atomic.Int64
	for range 3 {
		var work sync.WaitGroup
		for range 20 {
			work.Go(func() {
				st, err := c.Call(t.Context(), s.Addr()+"/1/count", "r", nil, nil)
				if err != nil {
					if !errors.Is(err, requestplane.ErrDisconnected) && !requestplane.NotStarted(err) {
						t.Errorf("call = %v", err)
					}
					broken.Add(1)
					return
				}
				defer st.Close()
				for i := 0; ; i++ {
					var got int
					switch err := st.Recv(t.Context(), &got); {
					case err == io.EOF && i == 500:
						whole.Add(1)
						return
					case errors.Is(err, requestplane.ErrIncomplete) && !requestplane.NotStarted(err):
						broken.Add(1)
						return
					case err != nil || got != i:
						t.Errorf("item %d = %d, %v", i, got, err)
						return
					}
				}
			})
		}
		patience.Until(t, "streams run", func() bool { return running.Load() == 20 })
		servers.Stop()
		servers.Restart()
		work.Wait()
		patience.Until(t, "calls work again", func() bool { return ask(t.Context(), c, s.Addr()+"/1/echo", "again") == nil })
		patience.Until(t, "all handlers know", func() bool { return running.Load() == 0 })
	}
	t.Logf("%d whole answers, %d broken ones", whole.Load(), broken.Load())
	if broken.Load() == 0 {
		t.Error("nothing broke: this test shows nothing")
	}
}

// The end of a process, which nobody announces, is noticed at both ends and by waiting calls.
func TestNATSPeerGone(t *testing.T) {
	servers := natspipetest.Start(t, server.Options{})
	bus := natspipetest.Bus(t, servers.URL())
	hub := natspipe.New(bus, natspipe.Config{Beat: 20 * time.Millisecond, Missed: 1 << 20})
	s, err := requestplane.ListenNATS(requestplane.ServerConfig{Key: clusterKey, Pipes: hub})
	if err != nil {
		t.Fatal(err)
	}
	handle(t, s, "1/hold", newHold().handle)
	c := newNATSClient(t, servers, requestplane.ClientConfig{Liveness: requestplane.Liveness{KeepAlive: 100 * time.Millisecond, PeerTimeout: patience.Soon}})
	st := start(t, c, s.Addr()+"/1/hold")
	if err := bus.Close(); err != nil { // as the end of its process would
		t.Fatal(err)
	}
	if err := st.Recv(t.Context(), nil); !errors.Is(err, requestplane.ErrIncomplete) || !strings.Contains(err.Error(), "gone") {
		t.Errorf("Recv = %v, want ErrIncomplete because the peer is gone", err)
	}
	if _, err := c.Call(t.Context(), s.Addr()+"/1/hold", "r", nil, nil); !errors.Is(err, natspipe.ErrRefused) || !requestplane.NotStarted(err) {
		t.Errorf("Call = %v", err)
	}
	mustClose(t, s)
	mustClose(t, hub)
}

// A caller that reads nothing holds up neither others nor the connection to NATS, even if many
// large messages wait for it.
func TestNATSSlowCaller(t *testing.T) {
	checkLeaks(t)
	servers := natspipetest.Start(t, server.Options{})
	s := listenNATS(t, servers, requestplane.ServerConfig{})
	handle(t, s, "1/echo", echo)
	handle(t, s, "1/flood", func(_ context.Context, _ *requestplane.Request, send func(any) error) error {
		for {
			if err := send(strings.Repeat("x", 100_000)); err != nil {
				return err
			}
		}
	})
	c := newNATSClient(t, servers, requestplane.ClientConfig{})
	for range 50 {
		start(t, c, s.Addr()+"/1/flood")
	}
	for i := range 100 {
		if err := ask(t.Context(), c, s.Addr()+"/1/echo", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if n := servers.SlowConsumers(); n != 0 {
		t.Errorf("NATS complains of %d slow consumers", n)
	}
}

// Nodes of the planes call each other: the address says how. A process without NATS says so.
func TestNATSBesideTCP(t *testing.T) {
	checkLeaks(t)
	servers := natspipetest.Start(t, server.Options{})
	over, direct := listenNATS(t, servers, requestplane.ServerConfig{}), listen(t, requestplane.ServerConfig{})
	handle(t, over, "1/echo", echo)
	handle(t, direct, "1/echo", echo)
	c := newNATSClient(t, servers, requestplane.ClientConfig{})
	for _, s := range []requestplane.Server{over, direct} {
		if err := ask(t.Context(), c, s.Addr()+"/1/echo", "hello"); err != nil {
			t.Errorf("%s: %v", s.Addr(), err)
		}
	}
	if err := ask(t.Context(), newClient(t, requestplane.ClientConfig{}), over.Addr()+"/1/echo", "x"); !requestplane.NotStarted(err) || !strings.Contains(err.Error(), "needs a connection to NATS") {
		t.Errorf("a client without NATS: %v", err)
	}
	if _, err := requestplane.ListenNATS(requestplane.ServerConfig{Key: clusterKey}); err == nil {
		t.Error("a server without NATS started")
	}
	if err := ask(t.Context(), newNATSClient(t, servers, requestplane.ClientConfig{Key: handshake.RandomKey()}), over.Addr()+"/1/echo", "x"); !errors.Is(err, handshake.ErrSecret) {
		t.Errorf("a client with another secret: %v", err)
	}
}
